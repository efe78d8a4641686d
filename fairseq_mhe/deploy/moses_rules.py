"""Moses' tokeniser and detokeniser, as sacremoses has them, in what a tokenizer.json can hold.

That file knows one kind of rule: replace each match of a regular expression by a fixed text. So
each of Moses' rules becomes the places between characters at which it puts a space (Oniguruma has
lookbehind of any length). When tokens are joined, a space that goes away is a mark first, since
later rules ask for whole tokens. The text is normalised before: its only white space is the space.
"""

import re
from itertools import groupby

from sacremoses import MosesDetokenizer, MosesTokenizer
from sacremoses.util import CJKChars

from fairseq_mhe.common.errors import UserError
from fairseq_mhe.prepare.languages import base_code

#: A pattern and what each match of it becomes.
Rule = tuple[str, str]

_MARK = "\ue000"  # between tokens: no space is to be here
_KEPT = "\ue001"  # between tokens: a space is to be here, whatever other rules say
_GAP = f"[ {_MARK}{_KEPT}]"
_CHAR = _GAP.replace("[", "[^")
#: Double quotation marks, German ones among them, are one kind.
_DOUBLE = '(?:"|[„“]+)'


def tokenising(lang: str) -> list[Rule]:
    """Rules that put a space between the tokens of a normalised line, maybe several."""
    lang = base_code(lang)
    moses = MosesTokenizer(lang=lang)
    alnum, alpha, digit = moses.IsAlnum, moses.IsAlpha, moses.IsN
    other, no_digit = _none_of(alnum, " .'`,-"), _none_of(digit)
    return [
        (f"(?<={other})|(?={other})", " "),
        (r"(?<=\.\.)(?=[^.])|(?<=[^.])(?=\.\.)", " "),
        (f"(?<={no_digit}),|,(?={no_digit}|$)", " , "),
        *_apostrophes(lang, alpha, digit),
        *[(" +", " "), ("^ | $", "")],  # before and after are whole tokens from here on
        *[_full_stops(moses, alpha), (r"\.'$", " . '")],
    ]


def _apostrophes(lang: str, alpha: str, digit: str) -> list[Rule]:
    """Apostrophes apart from one or both of their neighbours.

    A match of sacremoses' takes the apostrophe and both neighbours: of rock'n'roll's apostrophes
    the second has none left. Only neighbours of one class can be wanted twice; there a match is
    reached by an even number of others since the class began.
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
    """The full stop that ends a token, but behind abbreviations and before small letters."""
    numeric = set(moses.NUMERIC_ONLY_PREFIXES)
    prefixes = {each for each in moses.NONBREAKING_PREFIXES if " " not in each} - numeric
    letter = _one_of(alpha)
    kept = [f"(?<!{letter}[^ ]*\\.[^ ]*\\.)(?<!\\.[^ ]*{letter}[^ ]*\\.)"]
    kept.append(f"(?! {_one_of(moses.IsLower)})")
    beside = {
        r"(?<!(?:^| )(?:{})\.)": prefixes,
        r"(?!(?<=(?:^| )(?:{})\.) [0-9])": numeric,
    }
    for rule, words in beside.items():
        if words:
            kept.append(rule.format("|".join(sorted(map(re.escape, words)))))
    return rf"(?<=[^ .])\.(?= |$){''.join(kept)}", " ."


def detokenising(lang: str) -> list[Rule]:
    """Rules that join tokens, which have single spaces between them, to text as it is written.

    Whether a quotation mark opens depends on how many of its kind went before. A token of several
    marks (``), which nobody writes, opens and closes nothing. Raises UserError for Czech.
    """
    lang = base_code(lang)
    if lang == "cs":  # rules that look further than a regular expression does here
        raise UserError(
            "a tokenizer.json cannot hold Moses' detokeniser of cs: export in another format"
        )
    moses = MosesDetokenizer(lang=lang)
    cjk = "".join(f"{chr(first)}-{chr(last)}" for first, last in CJKChars().ranges)
    letter = _one_of(moses.IsAlpha)
    last = f"(?={_GAP}|$)"
    opening = _one_of(re.sub(f"[{cjk}]", "", moses.IsSc), "([{¿¡")
    rules: list[Rule] = [("^|$", " "), (" @-@ ", "-"), (" +", " "), ("^ | $", "")]
    if lang == "fr":
        rules.append((f" (?=[?!:;\\\\%]{last})", _KEPT))
    if lang != "ko":
        rules.append((f"(?<=[{cjk}]) (?=[{cjk}])", _MARK))
    rules.append((f"(?<=(?:^|{_GAP}){opening}+) ", _MARK))
    rules.append((f" (?=[,.?!:;\\\\%}}\\])]+{last})", _MARK))
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
    """No space behind the first, third, ... ``quote`` and before others; ``word``: other tokens.

    ``outside``: what stands before one that opens (default: words and pairs of quotes).
    """
    outside = outside or f"^(?:{word}{_GAP}|{quote}{_GAP}(?:{word}{_GAP})*{quote}{_GAP})*"
    return [
        (f"(?<={outside}{quote}) ", _MARK),
        (f" (?={quote}(?:{_GAP}|$))(?<={outside}{quote}{_GAP}(?:{word}{_GAP})*)", _MARK),
    ]


def _english_apostrophes(word: str) -> list[Rule]:
    """As `_quotation`; but outside quotation, one behind a word in -s belongs to it, opening none.

    ``outside``: behind a token that does not end in -s, at the line's start, or behind such one.
    """
    last = _char_but("s'")
    in_s, not_in_s = f"(?:{_CHAR}*s{_GAP})", f"(?:(?:{_CHAR}*{last}|{_CHAR}+'){_GAP})"
    pair = f"'{_GAP}(?:{word}{_GAP})*'{_GAP}"
    outside = f"^(?:{not_in_s}|{in_s}+(?:{not_in_s}|'{_GAP})|{pair})*"
    belongs = (f" (?='(?:{_GAP}|$))(?<={outside}{in_s}+)", _MARK)
    return [*_quotation("'", word, outside), belongs]


def _other_than(quote: str) -> str:
    """Any token but this character."""
    return f"(?:{_char_but(quote)}{_CHAR}*|{quote}{_CHAR}+)"


def _char_but(characters: str) -> str:
    """A character of a token that is none of these."""
    return _CHAR.replace("]", f"{characters}]")


def _one_of(*characters: str) -> str:
    """A character class in which neighbouring characters are a range."""
    codes, ranges = sorted(set(map(ord, "".join(characters)))), ""
    for _, pairs in groupby(enumerate(codes), key=lambda pair: pair[1] - pair[0]):
        neighbours = [re.escape(chr(code)) for _, code in pairs]
        ranges += f"{neighbours[0]}-{neighbours[-1]}"
    return f"[{ranges}]"


def _none_of(*characters: str) -> str:
    return _one_of(*characters).replace("[", "[^", 1)
