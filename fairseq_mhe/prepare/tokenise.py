"""Tokenise and detokenise by Moses' rules (sacremoses), or leave text as it is."""

import re
from collections.abc import Callable
from functools import cache, lru_cache, partial
from itertools import product

from sacremoses import MosesDetokenizer, MosesPunctNormalizer, MosesTokenizer

from fairseq_mhe.prepare.languages import base_code

TOKENIZERS = ("moses", "none")
#: For corpora that others tokenised: Moses' tokens with the XML escapes of its scripts (&apos;).
ESCAPED = "moses-escaped"
CACHED_WORDS = 500_000  # limit for each language; common words come early
_PLACEHOLDER = "zqz"  # stands for letters that Moses' rules do not tell apart
_CONTEXTUAL = "',."  # only words that begin or end with these depend on their context
_NEXT_WORDS = ("", "a", "1", "X")  # every kind of next word that Moses' rules tell apart
# The marks that may surround the letters of a word without making the letters matter.
_MARKS = re.escape("\"'`()[]<>,.:;!?/%&=+*-\u2013\u2014\u2026\u201e\u201c\u201d")
_CONTROL = re.compile(r"[\x00-\x08\x0e-\x1f]")  # sacremoses removes these from words
_SEPARATOR = "<\0<"  # joins lines; none of Moses' punctuation rules looks past it
_APOSTROPHES = re.compile(r"'\s+'")
# Each of Moses' punctuation rules applies only to lines with one of these.
_PUNCTUATION = re.compile(
    r"""[()`\r\u00a0„“”«»…\u2013\u2014\u00b4\u2018\u2019\u201a]| [ %:;]|''|["][,.]|[,.]["]"""
)


def tokeniser(name: str, lang: str) -> Callable[[str], str]:
    """Return a function from a line to its tokens, with single spaces between them."""
    language = base_code(lang)
    if name == ESCAPED:
        return partial(
            MosesTokenizer(lang=language).tokenize, return_str=True, escape=True
        )
    return str if name == "none" else WordwiseMoses(language)


class WordwiseMoses:
    """sacremoses' tokeniser, called by word, not by line: 3.7 times as fast (80,000 lines).

    This gives the same tokens, since those of a word depend only on the word, on whether it begins
    or ends the line, and on the first character of the next word. Most words do not even depend on
    that context. Moses' rules do not tell letters apart, except in abbreviations: the tokens of
    "word," follow from those of "zqz,". Only the rule for an apostrophe on each side of a space
    needs more context; such a line goes to sacremoses as a whole.
    """

    def __init__(self, lang: str) -> None:
        self._moses = moses = MosesTokenizer(lang=lang)
        self._is_plain = re.compile(rf"[{moses.IsAlnum}\-]+").fullmatch
        letters = rf"([{moses.IsAlpha}]{{2,}})"
        self._marked = re.compile(rf"([{_MARKS}]*){letters}([{_MARKS}]*)").fullmatch
        self._numerals, self._lower_case = frozenset(moses.IsN), frozenset(moses.IsLower)
        prefixes = " ".join(moses.NONBREAKING_PREFIXES)
        self._abbreviations = frozenset(re.findall(letters, prefixes))
        self._context_free: dict[str, str] = {}  # word -> its tokens
        self._in_context = lru_cache(CACHED_WORDS)(self._tokenise_in_context)
        self._contexts_agree = lru_cache(CACHED_WORDS)(self._compare_contexts)

    def __call__(self, line: str) -> str:
        """Return the line's tokens, with spaces between them."""
        is_clean = line.isprintable() or not _CONTROL.search(line)
        if not is_clean or ("'" in line and _APOSTROPHES.search(line)):
            return self.whole_line(line)
        words, cached = line.split(), self._context_free.get
        tokens = [cached(word) or self._tokens(words, i) for i, word in enumerate(words)]
        return " ".join(tokens)

    def whole_line(self, line: str) -> str:
        """Return sacremoses' tokens of the line."""
        # No XML escapes (&quot;): the subword model would have to learn them, and readers of the
        # output to undo them. No splitting of hyphens: models can misplace its marks (@-@).
        return self._moses.tokenize(line, return_str=True, escape=False)

    def _tokens(self, words: list[str], i: int) -> str:
        """Return the tokens of ``words[i]`` in its line; cache them if it is context-free."""
        word = words[i]
        next_word = words[i + 1] if i + 1 < len(words) else ""
        pattern, letters = self._pattern(word)
        tokens = self._in_context(i == 0, pattern, self._stand_in(next_word))
        tokens = tokens.replace(_PLACEHOLDER, letters)
        if len(self._context_free) < CACHED_WORDS and self._is_context_free(pattern):
            # If both are equal, keep one string in memory.
            self._context_free[word] = word if word == tokens else tokens
        return tokens

    def _pattern(self, word: str) -> tuple[str, str]:
        """Return the word with `_PLACEHOLDER` in place of its letters, and these letters."""
        unchanged = word, _PLACEHOLDER  # replacing the placeholder by itself does nothing
        if "DOT" in word or "MULTI" in word:  # sacremoses' own placeholders for dots
            return unchanged
        if self._is_plain(word):  # letters, digits and hyphens: always one token
            return _PLACEHOLDER, word
        if marked := self._marked(word):
            before, letters, after = marked.groups()
            if letters not in self._abbreviations and self._numerals.isdisjoint(letters):
                return f"{before}{_PLACEHOLDER}{after}", letters
        return unchanged

    def _stand_in(self, next_word: str) -> str:
        """Return one of `_NEXT_WORDS` that affects the word before it like ``next_word``."""
        if not next_word:
            return ""
        if next_word[0] in self._lower_case:
            return "a"
        return "1" if next_word[0] in "0123456789" else "X"

    def _tokenise_in_context(self, first: bool, word: str, next_word: str) -> str:
        """Return the tokens of a word, as the first of its line or not, before ``next_word``."""
        before, after = "" if first else "X ", f" {next_word}" if next_word else ""
        tokens = self.whole_line(f"{before}{word}{after}")
        return tokens.removeprefix(before).removesuffix(after)

    def _is_context_free(self, pattern: str) -> bool:
        """Whether the words of a pattern have equal tokens in every context; False if unknown."""
        if pattern[0] not in _CONTEXTUAL and pattern[-1] not in _CONTEXTUAL:
            return True
        # The comparison takes eight calls of sacremoses: too many if one word has the pattern.
        return _PLACEHOLDER in pattern and self._contexts_agree(pattern)

    def _compare_contexts(self, pattern: str) -> bool:
        contexts = product((True, False), _NEXT_WORDS)
        tokens = {self._in_context(first, pattern, word) for first, word in contexts}
        return len(tokens) == 1


@cache
def punctuation_normaliser(lang: str) -> Callable[[list[str]], list[str]]:
    """Return a function like Moses' normalize-punctuation, then remove-non-printing-char.

    The lines hold no NUL. The rules run once over many lines, joined by `_SEPARATOR`.
    """
    moses = MosesPunctNormalizer(lang=base_code(lang))
    remove = moses.remove_control_chars
    # Most spaces are single: the rule " +" -> " " is faster if it matches only longer runs.
    rules = [
        partial(re.compile(rule.replace(" +", "  +")).sub, text)
        for rule, text in moses.substitutions
    ]

    def normalise(lines: list[str]) -> list[str]:
        chosen = [i for i, line in enumerate(lines) if _PUNCTUATION.search(line)]
        if chosen:
            text = _SEPARATOR.join([lines[i] for i in chosen])
            for rule in rules:
                text = rule(text)
            lines = [*lines]
            for i, line in zip(chosen, text.split(_SEPARATOR), strict=True):
                lines[i] = line
        return [(line if line.isprintable() else remove(line)).strip() for line in lines]

    return normalise


@cache
def detokeniser(name: str, lang: str) -> Callable[[str], str]:
    """Return a function from a line of tokens to plain text in ``lang``."""
    if name == "none":
        return str
    moses = MosesDetokenizer(lang=base_code(lang))
    return lambda line: moses.detokenize(line.split(), unescape=name == ESCAPED)
