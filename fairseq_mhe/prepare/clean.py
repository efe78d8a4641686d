"""Which sentence pairs are kept: white space in order, sides neither empty, too long nor unlike."""

import re
import statistics
import unicodedata
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from functools import cache
from itertools import islice
from pathlib import Path

from fairseq_mhe.prepare.config import SPLITS, PrepareConfig
from fairseq_mhe.prepare.subword import WORD_START
from fairseq_mhe.prepare.tokenise import punctuation_normaliser, tokeniser

Pair = tuple[str, str]

_CONTROL = re.compile(r"[\x00-\x08\x0e-\x1b\x7f-\x84\x86-\x9f]")
# Where lengths are counted in characters: a token is rarely longer.
_CHARACTERS_A_TOKEN = 8
_USUAL_FROM = 100_000  # first pairs of a corpus
REASONS = {"empty": "empty", "too_long": "too long", "ratio": "of unlike lengths"}


@dataclass(frozen=True)
class CleanText:
    """The kept pairs: folder (raw, tokenised) -> UTF-8 text of both sides; and counts by fate."""

    texts: dict[str, tuple[bytes, bytes]]
    counts: Counter[str]


def normalise(line: str) -> str:
    """``line`` in Unicode's composed form, with single spaces and without control characters.

    Python and fairseq end lines at more characters than the line feed (a stray carriage return,
    U+2028): left in, they would shift one side against the other.
    """
    if WORD_START in line:  # SentencePiece would read it as a space
        line = line.replace(WORD_START, " ")
    # Of white space and control characters, a space alone is printable.
    if line.isprintable() and "  " not in line and unicodedata.is_normalized("NFC", line):
        return line.strip(" ")
    return " ".join(unicodedata.normalize("NFC", _CONTROL.sub("", line)).split())


@cache
def model_text(
    lang: str, tokenizer: str, punctuation: bool, lowercase: bool
) -> Callable[[str], str]:
    """A function from a normalised line to the text that subwords are made of."""
    tokens = tokeniser(tokenizer, lang)
    if punctuation:
        quotes, after = punctuation_normaliser(lang), model_text(lang, tokenizer, False, lowercase)
        return lambda line: after(quotes([line])[0])
    # Last, since capitals tell abbreviations from words.
    return (lambda line: tokens(line).lower()) if lowercase else tokens


def usual_ratio(pairs: Iterable[Pair]) -> float:
    """How many characters the target usually has for one of the source's: the median."""
    ratios = []
    for pair in islice(pairs, _USUAL_FROM):
        source, target = map(normalise, pair)
        if source and target:
            ratios.append(len(target) / len(source))
    return statistics.median(ratios or [1.0])


def clean_pairs(
    pairs: Iterable[Pair], config: PrepareConfig, split: str = "train", usual: float = 1.0
) -> CleanText:
    """Normalise, tokenise and filter pairs of lines of a split.

    ``usual``: the `usual_ratio` of the split.
    """
    source_tokens, target_tokens = (
        model_text(lang, config.tokenizer, False, config.lowercase) for lang in config.langs
    )
    max_ratio = config.max_ratio if split == "train" else None
    raws = [(normalise(source), normalise(target)) for source, target in pairs]
    counts: Counter[str] = Counter()
    plain: list[Pair] = []
    tokenised: list[Pair] = []
    for raw, (source, target) in zip(raws, _punctuated(raws, config), strict=True):
        tokens = source_tokens(source), target_tokens(target)
        reason = _reason_to_drop(raw, tokens, config, max_ratio, usual)
        counts[reason or "kept"] += 1
        if reason is None:
            plain.append((raw[0].lower(), raw[1].lower()) if config.lowercase else raw)
            tokenised.append(tokens)
    texts = {"raw": _sides(plain)}
    if config.model_folder == "tokenised":
        texts["tokenised"] = _sides(tokenised)
    return CleanText(texts, counts)


def _punctuated(raws: list[Pair], config: PrepareConfig) -> list[Pair]:
    """The pairs with normalised punctuation, if it is asked for; many lines at once are faster."""
    if not config.punctuation:
        return raws
    source_quotes, target_quotes = map(punctuation_normaliser, config.langs)
    sources = source_quotes([source for source, _ in raws])
    targets = target_quotes([target for _, target in raws])
    return list(zip(sources, targets, strict=True))


def _reason_to_drop(
    raw: Pair, tokens: Pair, config: PrepareConfig, max_ratio: float | None, usual: float
) -> str | None:
    """One of `REASONS`, or None."""
    if not all((*raw, *tokens)):
        return "empty"
    if config.counts_characters:
        longest = max(len(raw[0]), len(raw[1])) / _CHARACTERS_A_TOKEN
        lengths: list[float] = [len(raw[0]), len(raw[1]) / usual]
        spare = _CHARACTERS_A_TOKEN  # a single word more or less makes no pair a wrong one
    else:
        lengths = [tokens[0].count(" ") + 1, tokens[1].count(" ") + 1]
        longest, spare = max(lengths), 0
    if longest > config.max_tokens:
        return "too_long"
    if max_ratio is not None and max(lengths) > max_ratio * min(lengths) + spare:
        return "ratio"
    return None


def _sides(pairs: list[Pair]) -> tuple[bytes, bytes]:
    """The text of either side of the pairs."""
    sources = "".join([f"{source}\n" for source, _ in pairs])
    targets = "".join([f"{target}\n" for _, target in pairs])
    return sources.encode(), targets.encode()


class CleanWriter:
    """The files of clean text: those of each split, and the pairs that are held out of train."""

    def __init__(self, work: Path, config: PrepareConfig, stack: ExitStack) -> None:
        """Open all files, to be closed with ``stack``."""
        self._held_out = config.held_out
        self._every = config.hold_out or 1
        self._trained = 0  # pairs that came for train
        self._files = {}
        for folder in sorted({"raw", config.model_folder}):
            (work / folder).mkdir()
            for split in SPLITS:
                paths = [work / folder / f"{split}.{lang}" for lang in config.langs]
                self._files[folder, split] = [
                    stack.enter_context(path.open("wb")) for path in paths
                ]

    def __call__(self, split: str, clean: CleanText) -> dict[str, int]:
        """Write some text, and return how many of its pairs went to other splits."""
        if split != "train" or not self._held_out:
            for folder, sides in clean.texts.items():
                for stream, text in zip(self._files[folder, split], sides, strict=True):
                    stream.write(text)
            return {}
        kept = clean.counts["kept"]
        owners = [self._owner(self._trained + number) for number in range(1, kept + 1)]
        self._trained += kept
        for folder, sides in clean.texts.items():
            for side, text in enumerate(sides):
                for owner, line in zip(owners, text.splitlines(keepends=True), strict=True):
                    self._files[folder, owner][side].write(line)
        return {other: owners.count(other) for other in self._held_out}

    def _owner(self, number: int) -> str:
        """The split of a train pair, by its number from 1."""
        for split, place in self._held_out.items():
            if number % self._every == place:
                return split
        return "train"


def fates(counts: Mapping[str, int]) -> str:
    """How many pairs of a split were kept, held out, and dropped for which reason."""
    parts = [f"{counts['kept']:,} of {counts['read']:,} pairs kept"]
    if held_out := counts.get("held_out"):
        parts.append(f"{held_out:,} held out")
    parts += [f"{counts[name]:,} {reason}" for name, reason in REASONS.items() if counts.get(name)]
    return ", ".join(parts)


def dropped_percent(counts: Mapping[str, int]) -> float:
    """The percentage of a split's pairs that were dropped."""
    return 100 * sum(counts.get(name, 0) for name in REASONS) / max(1, counts["read"])
