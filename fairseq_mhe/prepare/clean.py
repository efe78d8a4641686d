"""Which sentence pairs are kept: white space in order, sides neither empty, too long nor unlike."""

import re
import statistics
import unicodedata
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache
from itertools import islice
from typing import NamedTuple

from fairseq_mhe.prepare.config import PrepareConfig
from fairseq_mhe.prepare.subword import WORD_START
from fairseq_mhe.prepare.tokenise import punctuation_normaliser, tokeniser

Pair = tuple[str, str]

_CONTROL = re.compile(r"[\x00-\x08\x0e-\x1b\x7f-\x84\x86-\x9f]")
# Where lengths are counted in characters: a token is rarely longer.
_CHARACTERS_A_TOKEN = 8
_USUAL_FROM = 100_000  # first pairs of a corpus
REASONS = {"empty": "empty", "too_long": "too long", "ratio": "of unlike lengths"}


class CleanText(NamedTuple):
    """The kept pairs: (folder, language) -> UTF-8 text; and how many pairs met which fate."""

    texts: dict[tuple[str, str], bytes]
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
) -> Callable[[list[str]], list[str]]:
    """A function from normalised lines to the text that subwords are made of."""
    tokens = tokeniser(tokenizer, lang)
    unify = punctuation_normaliser(lang) if punctuation else list

    def process(lines: list[str]) -> list[str]:
        lines = list(map(tokens, unify(lines)))
        # Last, since capitals tell abbreviations from words.
        return [line.lower() for line in lines] if lowercase else lines

    return process


def usual_ratio(pairs: Iterable[Pair]) -> float:
    """How many characters the target usually has for one of the source's: the median."""
    ratios = []
    for pair in islice(pairs, _USUAL_FROM):
        source, target = map(normalise, pair)
        if source and target:
            ratios.append(len(target) / len(source))
    return statistics.median(ratios or [1.0])


def clean_pairs(
    pairs: Sequence[Pair], config: PrepareConfig, split: str = "train", usual: float = 1.0
) -> CleanText:
    """Normalise, tokenise and filter pairs of lines of a split.

    ``usual``: the `usual_ratio` of the split.
    """
    raw = [[normalise(pair[side]) for pair in pairs] for side in (0, 1)]
    tokens = [
        model_text(lang, config.tokenizer, config.punctuation, config.lowercase)(lines)
        for lang, lines in zip(config.langs, raw, strict=True)
    ]
    max_ratio = config.max_ratio if split == "train" else None
    counts: Counter[str] = Counter()
    kept = []
    for row in zip(*raw, *tokens, strict=True):
        reason = _reason_to_drop(row[:2], row[2:], config, max_ratio, usual)
        counts[reason or "kept"] += 1
        if reason is None:
            kept.append(row)
    names = [(folder, lang) for folder in ("raw", config.model_folder) for lang in config.langs]
    texts = {}
    for name, lines in zip(names, zip(*kept, strict=True), strict=False):
        text = "".join([f"{line}\n" for line in lines])
        texts[name] = (text.lower() if config.lowercase else text).encode()
    return CleanText(texts, counts)


def _reason_to_drop(
    raw: Sequence[str],
    tokens: Sequence[str],
    config: PrepareConfig,
    max_ratio: float | None,
    usual: float,
) -> str | None:
    """One of `REASONS`, or None; ``raw`` and ``tokens``: source and target."""
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


def fates(counts: Mapping[str, int]) -> str:
    """How many pairs of a split were kept, held out, and dropped for which reason."""
    parts = [f"{counts['kept']:,} of {counts['read']:,} pairs kept"]
    names = {"held_out": "held out", **REASONS}
    parts += [f"{counts[name]:,} {fate}" for name, fate in names.items() if counts.get(name)]
    return ", ".join(parts)


def dropped_percent(counts: Mapping[str, int]) -> float:
    """The percentage of a split's pairs that were dropped."""
    return 100 * sum(counts.get(name, 0) for name in REASONS) / max(1, counts["read"])
