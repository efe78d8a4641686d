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
CACHED_WORDS = 500_000  # per language: bounds the memory; common words come early
_PLACEHOLDER = "zqz"  # stands for letters that Moses' rules see only as letters
_CONTEXTUAL = "',."  # the tokens of words that begin or end so depend on the context
_MARKS = re.escape("\"'`()[]<>,.:;!?/%&=+*-\u2013\u2014\u2026\u201e\u201c\u201d")
_CONTROL = re.compile(r"[\x00-\x08\x0e-\x1f]")  # sacremoses removes these from words
_SEPARATOR = "<\0<"  # between lines
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

    The tokens of a word depend on its context: whether it begins or ends the line, and the first
    character of the next word. Moses' rules do not tell letters apart, except in abbreviations:
    the tokens of "word," follow from those of "zqz,". Only the rule for an apostrophe on each side
    of a space needs more context; such a line goes to sacremoses as a whole.
    """

    def __init__(self, lang: str) -> None:
        self._moses = moses = MosesTokenizer(lang=lang)
        self._plain = re.compile(rf"[{moses.IsAlnum}\-]+").fullmatch
        letters = rf"([{moses.IsAlpha}]{{2,}})"
        self._marked = re.compile(rf"([{_MARKS}]*){letters}([{_MARKS}]*)").fullmatch
        self._numbers, self._lower = frozenset(moses.IsN), frozenset(moses.IsLower)
        prefixes = " ".join(moses.NONBREAKING_PREFIXES)
        self._abbreviations = frozenset(re.findall(letters, prefixes))
        self._context_free: dict[str, str] = {}  # word -> its tokens in every context
        self._in_context = lru_cache(CACHED_WORDS)(self._tokenise_in_context)
        self._is_context_free = lru_cache(CACHED_WORDS)(self._compare_contexts)

    def __call__(self, line: str) -> str:
        """Return the line's tokens, with spaces between them."""
        is_clean = line.isprintable() or not _CONTROL.search(line)
        if not is_clean or ("'" in line and _APOSTROPHES.search(line)):
            return self.whole_line(line)
        words = line.split()
        tokens = list(map(self._context_free.get, words))
        i = -1
        while None in tokens:
            i = tokens.index(None, i + 1)
            tokens[i] = self._tokens_of(words, i)
        return " ".join(tokens)  # type: ignore[arg-type]  # the loop has replaced every None

    def whole_line(self, line: str) -> str:
        """Return sacremoses' tokens of the line."""
        # No XML escapes (&quot;): the subword model would have to learn them, and readers of the
        # output to undo them. No splitting of hyphens: models can misplace its marks (@-@).
        return self._moses.tokenize(line, return_str=True, escape=False)

    def _tokens_of(self, words: list[str], i: int) -> str:
        """Return the tokens of the word ``words[i]`` of a line."""
        word = words[i]
        shape, letters = self._shape(word)
        following = self._kind(words[i + 1]) if i + 1 < len(words) else ""
        tokens = self._in_context(i == 0, shape, following).replace(_PLACEHOLDER, letters)
        context_free = word[0] not in _CONTEXTUAL and word[-1] not in _CONTEXTUAL
        if not context_free and shape != word:
            context_free = self._is_context_free(shape)
        if context_free and len(self._context_free) < CACHED_WORDS:
            # If both are equal, keep one string in memory.
            self._context_free[word] = word if word == tokens else tokens
        return tokens

    def _shape(self, word: str) -> tuple[str, str]:
        """Return the word with its letters replaced by `_PLACEHOLDER`, and these letters."""
        if "DOT" in word or "MULTI" in word:  # sacremoses' own placeholders for dots
            return word, _PLACEHOLDER
        if self._plain(word):
            return _PLACEHOLDER, word
        if marked := self._marked(word):
            before, letters, after = marked.groups()
            if letters not in self._abbreviations and self._numbers.isdisjoint(letters):
                return f"{before}{_PLACEHOLDER}{after}", letters
        return word, _PLACEHOLDER

    def _kind(self, word: str) -> str:
        """Return a word with the same effect on the word before it."""
        if word[0] in self._lower:
            return "a"
        return "1" if word[0] in "0123456789" else "X"

    def _tokenise_in_context(self, first: bool, word: str, following: str) -> str:
        """Return a word's tokens as the first word or not, before ``following`` if not empty."""
        before, after = "" if first else "X ", f" {following}" if following else ""
        tokens = self.whole_line(f"{before}{word}{after}")
        return tokens.removeprefix(before).removesuffix(after)

    def _compare_contexts(self, shape: str) -> bool:
        """Whether the tokens are the same in every context."""
        contexts = product((True, False), ("", "a", "1", "X"))
        tokens = {self._in_context(first, shape, kind) for first, kind in contexts}
        return len(tokens) == 1


@cache
def punctuation_normaliser(lang: str) -> Callable[[list[str]], list[str]]:
    """Return a function like Moses' normalize-punctuation, then remove-non-printing-char.

    The lines hold no NUL. The rules run once over many lines, since none looks past `_SEPARATOR`.
    """
    moses = MosesPunctNormalizer(lang=base_code(lang))
    remove = moses.remove_control_chars
    # The rule " +" -> " " need not match single spaces, which are most.
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
