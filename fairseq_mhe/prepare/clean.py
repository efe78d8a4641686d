"""Which sentence pairs are kept: white space in order, sides neither empty, too long nor unlike."""

import re
import statistics
import unicodedata
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import cache
from itertools import islice
from pathlib import Path

from fairseq_mhe.prepare.config import SPLITS, PrepareConfig
from fairseq_mhe.prepare.text import Block, pairs_of
from fairseq_mhe.prepare.tokenise import punctuation_normaliser, tokeniser

_CONTROL = re.compile(r"[\x00-\x08\x0e-\x1b\x7f-\x84\x86-\x9f]")
# A token is rarely longer; a line that passes the limit of tokens only because it has no spaces is
# caught by this.
_MAX_CHARACTERS_A_TOKEN = 8
_USUAL_FROM = 100_000  # first pairs of a corpus
REASONS = {"empty": "empty", "too_long": "too long", "ratio": "of unlike lengths"}


@dataclass(frozen=True)
class CleanOptions:
    """What `clean_chunk` needs to know about a split.

    ``max_ratio`` None keeps every ratio; it is None for valid and test, which are never thinned for
    their style.
    ``punctuation``: quotes, dashes and the like are written in one way in what the subwords see;
    the plain text (`normalise`) keeps them, since translations are scored against it. ``lowercase``
    changes both.
    ``characters``: lengths are counted in characters, not in tokens.
    """

    source_lang: str
    target_lang: str
    tokenizer: str
    max_tokens: int
    max_ratio: float | None
    punctuation: bool = False
    lowercase: bool = False
    characters: bool = False

    @property
    def keeps_text(self) -> bool:
        """Whether what the subwords see is the plain text itself."""
        return self.tokenizer == "none" and not self.punctuation


def options_of(config: PrepareConfig, split: str) -> CleanOptions:
    """How strict cleaning is with a split."""
    return CleanOptions(
        *config.langs,
        config.tokenizer,
        config.max_tokens,
        config.max_ratio if split == "train" else None,
        config.punctuation,
        config.lowercase,
        config.unspaced or config.tokenizer == "none",
    )


@dataclass
class CleanChunk:
    """The kept pairs, plain and tokenised, and how many were kept or dropped for which reason."""

    raw: list[tuple[str, str]] = field(default_factory=list)
    tokenised: list[tuple[str, str]] = field(default_factory=list)
    counts: Counter[str] = field(default_factory=Counter)


@dataclass(frozen=True)
class CleanBlock:
    """What is left of a block: folder (raw, tokenised) -> the text of both sides; and counts."""

    texts: dict[str, tuple[bytes, bytes]]
    counts: Counter[str]


def normalise(line: str) -> str:
    """``line`` in Unicode's composed form, with single spaces and without control characters.

    Python and fairseq end lines at more characters than the line feed (a stray carriage return,
    U+2028): left in, they would shift one side against the other.
    """
    # Of white space and control characters, a space alone is printable.
    if line.isprintable() and "  " not in line and unicodedata.is_normalized("NFC", line):
        return line.strip(" ")
    return " ".join(unicodedata.normalize("NFC", _CONTROL.sub("", line)).split())


@cache
def model_text(
    lang: str, tokenizer: str, punctuation: bool, lowercase: bool
) -> Callable[[str], str]:
    """A function from a normalised line to what subwords are made of."""
    tokens = tokeniser(tokenizer, lang)
    if punctuation:
        quotes, after = punctuation_normaliser(lang), model_text(lang, tokenizer, False, lowercase)
        return lambda line: after(quotes([line])[0])
    # Last, since abbreviations are told by their capitals.
    return (lambda line: tokens(line).lower()) if lowercase else tokens


def usual_ratio(pairs: Iterable[tuple[str, str]]) -> float:
    """How many characters the target usually has for one of the source's: the median."""
    ratios = []
    for pair in islice(pairs, _USUAL_FROM):
        source, target = map(normalise, pair)
        if source and target:
            ratios.append(len(target) / len(source))
    return statistics.median(ratios or [1.0])


def _reason_to_drop(
    raw: tuple[str, str], tokenised: tuple[str, str], options: CleanOptions, usual: float
) -> str | None:
    """One of `REASONS`, or None."""
    if not all((*raw, *tokenised)):
        return "empty"
    lengths: list[float] = [side.count(" ") + 1 for side in tokenised]
    if _is_overlong(raw, options) or (not options.characters and max(lengths) > options.max_tokens):
        return "too_long"
    spare = 0
    if options.characters:
        lengths = [len(raw[0]), len(raw[1]) / usual]
        spare = _MAX_CHARACTERS_A_TOKEN  # a single word more or less makes no pair a wrong one
    if options.max_ratio is not None and max(lengths) > options.max_ratio * min(lengths) + spare:
        return "ratio"
    return None


def _is_overlong(raw: tuple[str, str], options: CleanOptions) -> bool:
    """Whether a side has too many characters to be worth tokenising."""
    return max(map(len, raw)) > _MAX_CHARACTERS_A_TOKEN * options.max_tokens


def clean_chunk(
    pairs: Iterable[tuple[str, str]], options: CleanOptions, usual: float = 1.0
) -> CleanChunk:
    """Normalise, tokenise and filter some pairs of lines; ``usual`` as from `usual_ratio`."""
    langs = options.source_lang, options.target_lang
    source_tokens, target_tokens = (
        model_text(lang, options.tokenizer, False, options.lowercase) for lang in langs
    )
    raws = [(normalise(source), normalise(target)) for source, target in pairs]
    quoted = raws
    if options.punctuation:  # of all lines at once, which is far faster
        source_quotes, target_quotes = map(punctuation_normaliser, langs)
        sources = source_quotes([source for source, _ in raws])
        quoted = list(zip(sources, target_quotes([target for _, target in raws]), strict=True))
    chunk = CleanChunk()
    for raw, (source, target) in zip(raws, quoted, strict=True):
        tokenised = raw
        if not _is_overlong(raw, options):
            tokenised = source_tokens(source), target_tokens(target)
        reason = _reason_to_drop(raw, tokenised, options, usual)
        chunk.counts[reason or "kept"] += 1
        if reason is None:
            chunk.raw.append((raw[0].lower(), raw[1].lower()) if options.lowercase else raw)
            chunk.tokenised.append(tokenised)
    return chunk


def clean_block(block: Block, options: CleanOptions, usual: float) -> CleanBlock:
    """As `clean_chunk`, for lines as they are in a file."""
    chunk = clean_chunk(pairs_of(block), options, usual)
    texts = {"raw": _sides(chunk.raw)}
    if not options.keeps_text:
        texts["tokenised"] = _sides(chunk.tokenised)
    return CleanBlock(texts, chunk.counts)


def _sides(pairs: list[tuple[str, str]]) -> tuple[bytes, bytes]:
    """The text of either side of the pairs, as bytes: so it goes between processes unchanged."""
    source, target = ("".join(f"{pair[side]}\n" for pair in pairs) for side in (0, 1))
    return source.encode(), target.encode()


class CleanWriter:
    """The files of clean text: every split's own, and what is held out of train."""

    def __init__(self, work: Path, config: PrepareConfig, stack: ExitStack) -> None:
        """Open them all, to be closed with ``stack``."""
        self._held_out = config.held_out
        self._every = config.hold_out or 1
        self._trained = 0  # pairs that came for train
        self._files = {}
        for folder in ("raw",) if options_of(config, "train").keeps_text else ("raw", "tokenised"):
            (work / folder).mkdir()
            for split in SPLITS:
                paths = [work / folder / f"{split}.{lang}" for lang in config.langs]
                self._files[folder, split] = [
                    stack.enter_context(path.open("wb")) for path in paths
                ]

    def __call__(self, split: str, block: CleanBlock) -> dict[str, int]:
        """Write a block, and return how many of its pairs went to other splits."""
        if split != "train" or not self._held_out:
            for folder, sides in block.texts.items():
                for stream, text in zip(self._files[folder, split], sides, strict=True):
                    stream.write(text)
            return {}
        kept = block.counts["kept"]
        owners = [self._owner(self._trained + number) for number in range(1, kept + 1)]
        self._trained += kept
        for folder, sides in block.texts.items():
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
    """How many pairs of a split were kept, and dropped for which reason, as people read it."""
    told = [f"{counts['kept']:,} of {counts['read']:,} pairs kept"]
    if held_out := counts.get("held_out"):
        told.append(f"{held_out:,} held out")
    told += [f"{counts[name]:,} {reason}" for name, reason in REASONS.items() if counts.get(name)]
    return ", ".join(told)


def dropped_percent(counts: Mapping[str, int]) -> float:
    """Which part of a split's pairs was dropped."""
    return 100 * sum(counts.get(name, 0) for name in REASONS) / max(1, counts["read"])
