"""Clean parallel text: which pairs of train are kept, and why the others are dropped."""

import math
import statistics
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from fairseq_mhe.common.errors import UserError
from fairseq_mhe.prepare.config import PrepareConfig
from fairseq_mhe.prepare.languages import characters_per_token
from fairseq_mhe.prepare.text_processing import normalise

#: (source, target), or (source, target, source for the model, target for the model).
Row = tuple[str, ...]
#: The kept rows, and the number of pairs by outcome: "kept", or a key of `_REASONS`.
CleanText = tuple[list[Row], Counter[str]]

_TOLERANCE = 8  # characters by which the sides of a good pair may differ: a word
#: Why a pair of train is dropped: the key of its count -> the words of messages.
_REASONS = {
    "empty": "empty",
    "too_long": "too long (--max-tokens)",
    "ratio": "of unlike lengths (--max-ratio)",
}
_LONGEST_WORD = 1000  # characters; its subwords could exceed fairseq's 1,024 positions


def clean_pairs(
    pairs: Sequence[Row], config: PrepareConfig, split: str = "train", ratio: float = 1.0
) -> CleanText:
    """Normalise and tokenise pairs of a split, and filter those of train.

    Valid and test keep every pair: BLEU is of the official number of sentences. ``ratio``:
    `median_ratio` of the corpus.
    """
    raw = [[normalise(pair[side]) for pair in pairs] for side in (0, 1)]
    tokens = [config.processing.tokens(raw[side], side) for side in (0, 1)]
    kept: list[Row] = []
    outcomes: Counter[str] = Counter()
    for row in zip(*raw, *tokens, strict=True):
        outcome = _outcome(row, config, ratio) if split == "train" else "kept"
        outcomes[outcome] += 1
        if outcome == "kept":
            kept.append(tuple(map(str.lower, row)) if config.lowercase else row)
    return kept, outcomes


def _outcome(row: Row, config: PrepareConfig, ratio: float) -> str:
    """Return "kept", or the key of `_REASONS` that says why the pair is dropped."""
    if not all(row):
        return "empty"
    source, target, *tokens = row
    if config.counts_characters:
        lengths: list[float] = [len(source), len(target) / ratio]
        sizes = zip(row, map(characters_per_token, config.langs), strict=False)
        longest = max(len(side) / size for side, size in sizes)
        tolerance = _TOLERANCE
    else:
        lengths = [side.count(" ") + 1 for side in tokens]
        longest, tolerance = max(lengths), 0
    if longest > config.max_tokens or _has_endless_word(row, config):
        return "too_long"
    max_ratio = config.max_ratio or math.inf
    return "ratio" if max(lengths) > max_ratio * min(lengths) + tolerance else "kept"


def _has_endless_word(row: Row, config: PrepareConfig) -> bool:
    """Whether a word (a data URL, for instance) is longer than fairseq's positions may hold."""
    if not config.have_spaces or max(map(len, row)) <= _LONGEST_WORD:
        return False
    return any(len(word) > _LONGEST_WORD for side in row for word in side.split())


def median_ratio(pairs: Iterable[Row]) -> float:
    """Return the median number of target characters per source character."""
    sides = (map(normalise, pair) for pair in pairs)
    ratios = [len(target) / len(source) for source, target in sides if source and target]
    return statistics.median(ratios or [1.0])


def check_kept(split: str, counts: Counter[str], max_dropped: float) -> None:
    """Raise UserError if no kept pair has text, or cleaning drops over ``max_dropped`` percent."""
    dropped, outcomes = summary(counts)
    if counts["kept"] == counts["empty_side"]:
        raise UserError(f"cleaning keeps no pair of {split} ({outcomes}): check the text")
    if dropped > max_dropped:
        advice = "relax --max-ratio or --max-tokens, or accept it with --max-dropped 100"
        problem = f"cleaning drops {dropped:.0f}% of {split} ({outcomes})"
        raise UserError(f"{problem}: check the text, {advice}")


def summary(counts: Mapping[str, int]) -> tuple[float, str]:
    """Return the percentage of dropped pairs, and the number of pairs by outcome as text."""
    parts = [f"{counts['kept']:,} of {counts['read']:,} pairs kept"]
    words = {"held_out": "held out", **_REASONS}
    parts += [
        f"{counts[name]:,} {word}" for name, word in words.items() if counts.get(name)
    ]
    dropped = sum(counts.get(name, 0) for name in _REASONS)
    return 100 * dropped / max(1, counts["read"]), ", ".join(parts)
