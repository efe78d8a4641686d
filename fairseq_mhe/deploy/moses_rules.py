"""Moses' tokeniser and detokeniser, as in sacremoses, as rules that a tokenizer.json can hold.

A tokenizer.json replaces each match of a regular expression by a fixed text. So a rule here matches
the places between characters where Moses puts a space (Oniguruma has lookbehind of any length). A
rule that joins tokens replaces the space by a mark, so that later rules still see where tokens end;
the last rules remove the marks. Rules get normalised text: its only white space is the space.
"""

import re

from sacremoses import MosesDetokenizer, MosesTokenizer
from sacremoses.util import CJKChars

from fairseq_mhe.common.errors import UserError
from fairseq_mhe.prepare.languages import base_code

#: A pattern and what each match of it becomes.
Rule = tuple[str, str]
#: Rules that leave single spaces between tokens, and none at the ends of the line.
_SINGLE_SPACES: list[Rule] = [(" +", " "), ("^ | $", "")]


def _one_of(*characters: str) -> str:
    """Return a character class that writes runs of consecutive code points as ranges."""
    codes = set(map(ord, "".join(characters)))
    firsts = sorted(code for code in codes if code - 1 not in codes)
    lasts = sorted(code for code in codes if code + 1 not in codes)
    ends = zip(map(chr, firsts), map(chr, lasts), strict=True)
    ranges = [f"{re.escape(first)}-{re.escape(last)}" for first, last in ends]
    return f"[{''.join(ranges)}]"


def _none_of(*characters: str) -> str:
    return _one_of(*characters).replace("[", "[^", 1)


_JOIN = "\ue000"  # a space between tokens that the last rules remove
_KEEP = "\ue001"  # a space between tokens that the last rules restore
_GAPS = f" {_JOIN}{_KEEP}"
_GAP, _CHAR = _one_of(_GAPS), _none_of(_GAPS)  # between two tokens, in a token
_TOKEN_END = f"(?={_GAP}|$)"


def tokenising(lang: str) -> list[Rule]:
    """Return rules that put single spaces between the tokens of a normalised line.

    They separate all of several commas in a row, sacremoses only every second one.
    """
    moses = MosesTokenizer(lang=base_code(lang))
    symbol, no_digit = _none_of(moses.IsAlnum, " .'`,-"), _none_of(moses.IsN)
    return [
        (f"(?<={symbol})|(?={symbol})", " "),  # around other symbols
        (r"(?<=\.\.)(?=[^.])|(?<=[^.])(?=\.\.)", " "),  # around several full stops
        (f"(?<={no_digit}),|,(?={no_digit}|$)", " , "),  # commas, but not in 1,000
        *_apostrophes(moses),
        *_SINGLE_SPACES,
        _full_stops(moses),
        (r"\.'$", " . '"),
        *_SINGLE_SPACES,
    ]


def _apostrophes(moses: MosesTokenizer) -> list[Rule]:
    """Return rules that separate apostrophes from one or both of their neighbours.

    A match in sacremoses consumes the apostrophe and both neighbours. So in a'b'c the first match
    takes b, and the second apostrophe has no left neighbour; in a'b'c'd the third one matches. A
    rule here consumes no neighbour. Instead, its lookbehind reads the earlier matches.
    """
    if moses.lang not in ("en", "fr", "it"):
        return [("'", " ' ")]
    english = moses.lang == "en"
    letter, other = _one_of(moses.IsAlpha), _none_of(moses.IsAlpha)
    # Each letter'letter' before the match is an earlier match, and an apostrophe without one.
    start = f"(?:^|^'|[^']|{other}')"
    in_letters = f"(?<={start}(?:{letter}'{letter}')*{letter})'(?={letter})"
    # A run of others begins after a letter. Its first may be an apostrophe, which cannot match.
    others = other + _none_of(moses.IsAlpha, "'") + "*"
    in_others = f"(?<=(?:^|{letter})(?:{others}'{other})*{others})'(?={other})"
    left = _none_of(moses.IsAlpha, moses.IsN) if english else other
    rules = [
        (in_others, " ' "),
        (f"(?<={left})'(?={letter})", " ' "),
        (f"(?<={letter})'(?={other})", " ' "),
        (in_letters, " '" if english else "' "),  # it 's, l' eau
    ]
    if english:
        rules.append((f"(?<={_one_of(moses.IsN)})'(?=s)", " '"))  # 1990 's
    return rules


def _full_stops(moses: MosesTokenizer) -> Rule:
    """Return a rule that splits off the full stop at the end of a token, with Moses' exceptions."""
    before_digits = set(moses.NUMERIC_ONLY_PREFIXES)  # abbreviations only there: No. 5
    prefixes = {word for word in moses.NONBREAKING_PREFIXES if " " not in word}
    letter = _one_of(moses.IsAlpha)
    pattern = r"(?<=[^ .])\.(?= |$)"
    # Not in a token with another full stop and a letter, in either order: e.g.
    pattern += rf"(?<!{letter}[^ ]*\.[^ ]*\.)(?<!\.[^ ]*{letter}[^ ]*\.)"
    # Not before a token that begins in lower case.
    pattern += f"(?! {_one_of(moses.IsLower)})"
    # Not after an abbreviation.
    pattern += rf"(?<!(?:^| ){_any_of(prefixes - before_digits)}\.)"
    pattern += rf"(?!(?<=(?:^| ){_any_of(before_digits)}\.) [0-9])"
    return pattern, " ."


def _any_of(words: set[str]) -> str:
    return f"(?:{'|'.join(sorted(map(re.escape, words)))})"


def detokenising(lang: str) -> list[Rule]:
    """Return rules that join tokens, between which are single spaces, to text as people write it.

    A quotation mark opens or closes depending on how many of its kind precede it. A token of
    several marks (``) does neither, unlike in Moses, as text hardly has any. UserError for Czech.
    """
    lang = base_code(lang)
    if lang == "cs":  # its rules need more context than these regular expressions see
        raise UserError(
            "a tokenizer.json cannot hold Moses' detokeniser of cs: export in another format"
        )
    moses = MosesDetokenizer(lang=lang)
    letter = _one_of(moses.IsAlpha)
    cjk = "".join(f"{chr(first)}-{chr(last)}" for first, last in CJKChars().ranges)
    opening = _one_of(re.sub(f"[{cjk}]", "", moses.IsSc), "([{¿¡")  # IsSc: currency
    # Spaces at both ends of the line, so that a split hyphen, @-@, has two everywhere.
    rules: list[Rule] = [("^|$", " "), (" @-@ ", "-"), *_SINGLE_SPACES]
    if lang == "fr":
        rules.append((f" (?=[?!:;\\\\%]{_TOKEN_END})", _KEEP))  # French writes this space
    if lang != "ko":
        rules.append((f"(?<=[{cjk}]) (?=[{cjk}])", _JOIN))  # Chinese and Japanese
    rules.append((f"(?<=(?:^|{_GAP}){opening}+) ", _JOIN))  # ( a
    rules.append((f" (?=[,.?!:;\\\\%}}\\])]+{_TOKEN_END})", _JOIN))  # a )
    if lang == "en":
        rules.append((f" (?='{letter})", _JOIN))  # it 's
    if lang in ("fr", "it", "ga"):
        rules.append((f"(?<={letter}') (?={letter})", _JOIN))  # l' eau
    # Moses treats all double marks, German ones too, as one kind.
    no_double, no_german = _none_of(_GAPS, '"„“'), _none_of(_GAPS, "„“")
    word = f'(?:{no_double}{_CHAR}*|"{_CHAR}+|[„“]+{no_german}{_CHAR}*)'
    rules += _quotes('(?:"|[„“]+)', word)
    single = _other_than("'")
    rules += _english_apostrophes(single) if lang == "en" else _quotes("'", single)
    rules += _quotes("`", _other_than("`"))
    return [*rules, (_KEEP, " "), (_JOIN, ""), ("^ +| +$", "")]


def _quotes(quote: str, word: str, outside: str = "") -> list[Rule]:
    """Return rules that remove the space after an opening and before a closing ``quote``.

    Quotes open and close in turn. ``word`` matches any other token, ``outside`` the text before an
    opening quote (default: words and pairs of quotes).
    """
    outside = outside or f"^(?:{word}{_GAP}|{quote}{_GAP}(?:{word}{_GAP})*{quote}{_GAP})*"
    return [
        (f"(?<={outside}{quote}) ", _JOIN),
        (f" (?={quote}{_TOKEN_END})(?<={outside}{quote}{_GAP}(?:{word}{_GAP})*)", _JOIN),
    ]


def _english_apostrophes(word: str) -> list[Rule]:
    """Return `_quotes` rules that join an apostrophe to a word in -s outside quotations (dogs')."""
    # A quotation opens only at the line's start, after a token not in -s, or such an apostrophe.
    not_s = _none_of(_GAPS, "s'")
    in_s = f"(?:{_CHAR}*s{_GAP})"
    not_in_s = f"(?:(?:{_CHAR}*{not_s}|{_CHAR}+'){_GAP})"
    quotation = f"'{_GAP}(?:{word}{_GAP})*'{_GAP}"
    outside = f"^(?:{not_in_s}|{in_s}+(?:{not_in_s}|'{_GAP})|{quotation})*"
    after_s = (f" (?='{_TOKEN_END})(?<={outside}{in_s}+)", _JOIN)
    return [*_quotes("'", word, outside), after_s]


def _other_than(quote: str) -> str:
    """Return a pattern for any token except the single character ``quote``."""
    return f"(?:{_none_of(_GAPS, quote)}{_CHAR}*|{quote}{_CHAR}+)"
