"""Words and punctuation apart, and together again: Moses' rules through sacremoses, or nothing.

Asking sacremoses for words, not lines, is 3.7 times as fast (80,000 lines); tests compare both.
"""

import re
from collections.abc import Callable
from functools import cache, lru_cache, partial
from itertools import product

from sacremoses import MosesDetokenizer, MosesPunctNormalizer, MosesTokenizer

from fairseq_mhe.prepare.languages import base_code

TOKENIZERS = ("moses", "none")
#: Moses' tokens as its scripts write them, with XML escapes (&apos;): of text that others made.
ESCAPED = "moses-escaped"
CACHED_WORDS = 500_000  # of a language: the memory stays bounded, common words come early
_LETTERS = "zqz"  # in which no rule sees more than that they are letters
_BOUND = "',."  # at the ends of words whose tokens depend on the context
_MARKS = re.escape("\"'`()[]<>,.:;!?/%&=+*-\u2013\u2014\u2026\u201e\u201c\u201d")
_JUNK = re.compile(r"[\x00-\x08\x0e-\x1f]")  # what sacremoses removes from inside words
_BETWEEN = "<\0<"  # lines
_APOSTROPHES = re.compile(r"'\s+'")
# Each of Moses' rules for punctuation needs one of these in the line.
_TO_NORMALISE = re.compile(
    r"""[()`\r\u00a0„“”«»…\u2013\u2014\u00b4\u2018\u2019\u201a]| [ %:;]|''|["][,.]|[,.]["]"""
)


def tokeniser(name: str, lang: str) -> Callable[[str], str]:
    """A function from a line to its tokens with single spaces between them."""
    language = base_code(lang)
    if name == ESCAPED:
        return partial(
            MosesTokenizer(lang=language).tokenize, return_str=True, escape=True
        )
    return str if name == "none" else WordwiseMoses(language)


class WordwiseMoses:
    """sacremoses' tokeniser, asked once for each word, not once for each line.

    Moses' rules look at a word, whether it begins or ends the line, and the first character of the
    next word: its context. They see letters in a row only as letters, but for abbreviations: the
    tokens of "word," are those of "zqz,". The one rule that sees more, an apostrophe before the
    space and one behind it, sends the whole line to sacremoses.
    """

    def __init__(self, lang: str) -> None:
        self._moses = moses = MosesTokenizer(lang=lang)
        self._plain = re.compile(rf"[{moses.IsAlnum}\-]+").fullmatch
        letters = rf"([{moses.IsAlpha}]{{2,}})"
        self._marked = re.compile(rf"([{_MARKS}]*){letters}([{_MARKS}]*)").fullmatch
        self._numbers, self._lower = frozenset(moses.IsN), frozenset(moses.IsLower)
        prefixes = " ".join(moses.NONBREAKING_PREFIXES)
        self._abbreviations = frozenset(re.findall(letters, prefixes))
        self._free: dict[str, str] = {}  # word -> tokens, whatever stands around it
        self._in_context = lru_cache(CACHED_WORDS)(self._ask_in_context)
        self._same_everywhere = lru_cache(CACHED_WORDS)(self._ask_everywhere)

    def __call__(self, line: str) -> str:
        """The line's tokens, with spaces between them."""
        is_clean = line.isprintable() or not _JUNK.search(line)
        if not is_clean or ("'" in line and _APOSTROPHES.search(line)):
            return self.whole_line(line)
        words = line.split()
        tokens = list(map(self._free.get, words))
        place = -1
        while None in tokens:
            place = tokens.index(None, place + 1)
            tokens[place] = self._word(words, place)
        return " ".join(tokens)  # type: ignore[arg-type]  # none is None any more

    def whole_line(self, line: str) -> str:
        """What sacremoses makes of the line."""
        # Without XML escapes (&quot;): they would be one more thing for the subwords to learn and
        # for a reader to undo. Hyphens stay inside words; splitting them is the one Moses option
        # whose marks (@-@) models can put wrongly.
        return self._moses.tokenize(line, return_str=True, escape=False)

    def _word(self, words: list[str], place: int) -> str:
        """The tokens of a word of a line."""
        word = words[place]
        shape, letters = self._shape(word)
        following = self._kind(words[place + 1]) if place + 1 < len(words) else ""
        tokens = self._in_context(place == 0, shape, following).replace(_LETTERS, letters)
        is_free = word[0] not in _BOUND and word[-1] not in _BOUND
        if not is_free and shape != word:
            is_free = self._same_everywhere(shape)
        if is_free and len(self._free) < CACHED_WORDS:
            # One string in memory, not two equal ones.
            self._free[word] = word if word == tokens else tokens
        return tokens

    def _shape(self, word: str) -> tuple[str, str]:
        """A word with `_LETTERS` in place of usual letters, and these letters."""
        if "DOT" in word or "MULTI" in word:  # sacremoses' own stand-ins for dots
            return word, _LETTERS
        if self._plain(word):
            return _LETTERS, word
        if marked := self._marked(word):
            before, letters, after = marked.groups()
            if letters not in self._abbreviations and self._numbers.isdisjoint(letters):
                return f"{before}{_LETTERS}{after}", letters
        return word, _LETTERS

    def _kind(self, word: str) -> str:
        """A word that has the same effect on its predecessor."""
        if word[0] in self._lower:
            return "a"
        return "1" if word[0] in "0123456789" else "X"

    def _ask_in_context(self, first: bool, word: str, following: str) -> str:
        """What sacremoses makes of a word, as the first one or not, before another or none."""
        before, after = "" if first else "X ", f" {following}" if following else ""
        tokens = self.whole_line(f"{before}{word}{after}")
        return tokens.removeprefix(before).removesuffix(after)

    def _ask_everywhere(self, shape: str) -> bool:
        """Whether the tokens are the same in every context."""
        contexts = product((True, False), ("", "a", "1", "X"))
        tokens = {self._in_context(first, shape, kind) for first, kind in contexts}
        return len(tokens) == 1


@cache
def punctuation_normaliser(lang: str) -> Callable[[list[str]], list[str]]:
    """As Moses' normalize-punctuation and remove-non-printing-char, of lines without NUL.

    sacremoses' rules see many lines at once: none looks beyond `_BETWEEN`.
    """
    moses = MosesPunctNormalizer(lang=base_code(lang))
    remove = moses.remove_control_chars
    # A space that is written as a space again is left out: most are.
    rules = [
        partial(re.compile(rule.replace(" +", "  +")).sub, text)
        for rule, text in moses.substitutions
    ]

    def normalise(lines: list[str]) -> list[str]:
        places = [place for place, line in enumerate(lines) if _TO_NORMALISE.search(line)]
        if places:
            text = _BETWEEN.join([lines[place] for place in places])
            for rule in rules:
                text = rule(text)
            lines = [*lines]
            for place, line in zip(places, text.split(_BETWEEN), strict=True):
                lines[place] = line
        return [(line if line.isprintable() else remove(line)).strip() for line in lines]

    return normalise


@cache
def detokeniser(name: str, lang: str) -> Callable[[str], str]:
    """A function from tokens to plain text as it is written in ``lang``."""
    if name == "none":
        return str
    moses = MosesDetokenizer(lang=base_code(lang))
    return lambda line: moses.detokenize(line.split(), unescape=name == ESCAPED)
