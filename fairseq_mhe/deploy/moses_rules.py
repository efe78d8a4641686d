"""Moses' tokeniser and detokeniser, as in sacremoses, as rules that a tokenizer.json can hold.

A tokenizer.json replaces each match of a regular expression by a fixed text. So a rule here matches
the places between characters where Moses puts a space (Oniguruma has lookbehind of any length). A
rule that joins tokens replaces the space by a mark, so that later rules still see where tokens end;
the last rules remove the marks. Rules get normalised text: its only white space is the space.
"""

import re
from itertools import groupby

from sacremoses import MosesDetokenizer, MosesTokenizer
from sacremoses.util import CJKChars

from fairseq_mhe.common.errors import UserError
from fairseq_mhe.prepare.languages import base_code

#: A pattern and what each match of it becomes.
Rule = tuple[str, str]

_MARK = "\ue000"  # a space between tokens that will be removed
_KEPT = "\ue001"  # a space between tokens that no other rule removes
_GAP = f"[ {_MARK}{_KEPT}]"
_CHAR = _GAP.replace("[", "[^")
#: Rules treat all double quotation marks, German ones too, as one kind.
_DOUBLE = '(?:"|[„“]+)'


def tokenising(lang: str) -> list[Rule]:
    """Return rules that put one or more spaces between the tokens of a normalised line."""
    lang = base_code(lang)
    moses = MosesTokenizer(lang=lang)
    alnum, alpha, digit = moses.IsAlnum, moses.IsAlpha, moses.IsN
    other, no_digit = _none_of(alnum, " .'`,-"), _none_of(digit)
    return [
        (f"(?<={other})|(?={other})", " "),
        (r"(?<=\.\.)(?=[^.])|(?<=[^.])(?=\.\.)", " "),
        (f"(?<={no_digit}),|,(?={no_digit}|$)", " , "),
        *_apostrophes(lang, alpha, digit),
        *[(" +", " "), ("^ | $", "")],  # from here on, single spaces separate the tokens
        *[_full_stops(moses, alpha), (r"\.'$", " . '")],
    ]


def _apostrophes(lang: str, alpha: str, digit: str) -> list[Rule]:
    """Return rules that separate apostrophes from one or both of their neighbours.

    A match in sacremoses consumes the apostrophe and both neighbours, so the second apostrophe of
    rock'n'roll has no left neighbour. This matters only between neighbours of one class. There, an
    apostrophe matches if an even number of apostrophes precede it in the run of this class.
    """
    letter, other, number = _one_of(alpha), _none_of(alpha), _one_of(digit)
    others = other.replace("[^", "[^'")
    in_letters = (
        f"(?<=(?:^|^'|[^']|{other}')(?:{letter}'{letter}')*{letter})'(?={letter})"
    )
    before = f"(?:^|{letter})(?:{other}{others}*'{other})*{other}{others}*"
    rules = [(f"(?<={before})'(?={other})", " ' ")]
    if lang == "en":
        rules.append((f"(?<={_none_of(alpha, digit)})'(?={letter})", " ' "))
        rules.append((f"(?<={letter})'(?={other})", " ' "))
        return [*rules, (in_letters, " '"), (f"(?<={number})'(?=s)", " '")]
    if lang in ("fr", "it"):
        rules.append((f"(?<={other})'(?={letter})", " ' "))
        return [*rules, (f"(?<={letter})'(?={other})", " ' "), (in_letters, "' ")]
    return [("'", " ' ")]


def _full_stops(moses: MosesTokenizer, alpha: str) -> Rule:
    """Return a rule that splits off final full stops, not of abbreviations or before lower case."""
    numeric = set(moses.NUMERIC_ONLY_PREFIXES)
    prefixes = {word for word in moses.NONBREAKING_PREFIXES if " " not in word} - numeric
    letter = _one_of(alpha)
    conditions = [f"(?<!{letter}[^ ]*\\.[^ ]*\\.)(?<!\\.[^ ]*{letter}[^ ]*\\.)"]
    conditions.append(f"(?! {_one_of(moses.IsLower)})")
    abbreviations = {
        r"(?<!(?:^| )(?:{})\.)": prefixes,
        r"(?!(?<=(?:^| )(?:{})\.) [0-9])": numeric,
    }
    for condition, words in abbreviations.items():
        if words:
            conditions.append(condition.format("|".join(sorted(map(re.escape, words)))))
    return rf"(?<=[^ .])\.(?= |$){''.join(conditions)}", " ."


def detokenising(lang: str) -> list[Rule]:
    """Return rules that join tokens, between which are single spaces, to text as people write it.

    A quotation mark opens or closes depending on how many of its kind precede it. A token of
    several marks (``), which nobody writes, does neither. Raises UserError for Czech.
    """
    lang = base_code(lang)
    if lang == "cs":  # its rules need more context than these regular expressions see
        raise UserError(
            "a tokenizer.json cannot hold Moses' detokeniser of cs: export in another format"
        )
    moses = MosesDetokenizer(lang=lang)
    cjk = "".join(f"{chr(first)}-{chr(last)}" for first, last in CJKChars().ranges)
    letter = _one_of(moses.IsAlpha)
    token_end = f"(?={_GAP}|$)"
    opening = _one_of(re.sub(f"[{cjk}]", "", moses.IsSc), "([{¿¡")
    rules: list[Rule] = [("^|$", " "), (" @-@ ", "-"), (" +", " "), ("^ | $", "")]
    if lang == "fr":
        rules.append((f" (?=[?!:;\\\\%]{token_end})", _KEPT))
    if lang != "ko":
        rules.append((f"(?<=[{cjk}]) (?=[{cjk}])", _MARK))
    rules.append((f"(?<=(?:^|{_GAP}){opening}+) ", _MARK))
    rules.append((f" (?=[,.?!:;\\\\%}}\\])]+{token_end})", _MARK))
    if lang == "en":
        rules.append((f" (?='{letter})", _MARK))
    if lang in ("fr", "it", "ga"):
        rules.append((f"(?<={letter}') (?={letter})", _MARK))
    no_double, no_german = _char_but('"„“'), _char_but("„“")
    other = f'(?:{no_double}{_CHAR}*|"{_CHAR}+|[„“]+{no_german}{_CHAR}*)'
    rules += _quotation(_DOUBLE, other)
    single, backquote = _other_than("'"), _other_than("`")
    rules += _english_apostrophes(single) if lang == "en" else _quotation("'", single)
    rules += _quotation("`", backquote)
    return [*rules, (_KEPT, " "), (_MARK, ""), ("^ +| +$", "")]


def _quotation(quote: str, word: str, outside: str = "") -> list[Rule]:
    """Return rules that remove the space after an opening and before a closing ``quote``.

    Quotes open and close in turn. ``word`` matches any other token, ``outside`` the text before an
    opening quote (default: words and pairs of quotes).
    """
    outside = outside or f"^(?:{word}{_GAP}|{quote}{_GAP}(?:{word}{_GAP})*{quote}{_GAP})*"
    return [
        (f"(?<={outside}{quote}) ", _MARK),
        (f" (?={quote}(?:{_GAP}|$))(?<={outside}{quote}{_GAP}(?:{word}{_GAP})*)", _MARK),
    ]


def _english_apostrophes(word: str) -> list[Rule]:
    """Return `_quotation` rules that join an apostrophe to a word in -s outside quotations.

    So a quotation opens only at the line's start, after a token that does not end in -s, or after
    such an apostrophe.
    """
    not_s = _char_but("s'")
    in_s, not_in_s = f"(?:{_CHAR}*s{_GAP})", f"(?:(?:{_CHAR}*{not_s}|{_CHAR}+'){_GAP})"
    pair = f"'{_GAP}(?:{word}{_GAP})*'{_GAP}"
    outside = f"^(?:{not_in_s}|{in_s}+(?:{not_in_s}|'{_GAP})|{pair})*"
    belongs = (f" (?='(?:{_GAP}|$))(?<={outside}{in_s}+)", _MARK)
    return [*_quotation("'", word, outside), belongs]


def _other_than(quote: str) -> str:
    """Return a pattern for any token except the single character ``quote``."""
    return f"(?:{_char_but(quote)}{_CHAR}*|{quote}{_CHAR}+)"


def _char_but(characters: str) -> str:
    """Return a pattern for any character of a token except these."""
    return _CHAR.replace("]", f"{characters}]")


def _one_of(*characters: str) -> str:
    """Return a character class that writes runs of consecutive code points as ranges."""
    codes, ranges = sorted(set(map(ord, "".join(characters)))), ""
    for _, pairs in groupby(enumerate(codes), key=lambda pair: pair[1] - pair[0]):
        neighbours = [re.escape(chr(code)) for _, code in pairs]
        ranges += f"{neighbours[0]}-{neighbours[-1]}"
    return f"[{ranges}]"


def _none_of(*characters: str) -> str:
    return _one_of(*characters).replace("[", "[^", 1)
