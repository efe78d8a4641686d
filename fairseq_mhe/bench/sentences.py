"""Random sentences of realistic lengths, in batches made by fairseq's own code."""

from typing import Any

import numpy as np
import torch
from fairseq.data import Dictionary, LanguagePairDataset
from torch import Tensor

#: Sentence pairs that are drawn and batched; batches to measure are picked among them.
_PAIRS = 20_000
#: Source lengths in subwords are log-normal: median, deviation of the logarithm, and deviation of
#: the logarithm of target / source. The deviations are those of the first 20,000 pairs of Europarl
#: v7 English-German, in words.
_MEDIAN, _SPREAD, _RATIO_SPREAD = 24.0, 0.68, 0.20
_SHORTEST, _LONGEST = 3, 200
#: In a batch to translate, the shortest sentence has this share of the longest one's tokens:
#: fairseq sorts by length.
_SHORTEST_SHARE = 0.9


def training_batches(
    dictionary: Dictionary, max_tokens: int, count: int, seed: int
) -> list[dict[str, Any]]:
    """``count`` batches as fairseq-train would see them with ``--max-tokens max_tokens``.

    Real training makes batches of sentences of similar length out of millions; ``_PAIRS`` are
    enough for that.
    """
    random = np.random.default_rng(seed)
    source = _bounded(_MEDIAN * np.exp(_SPREAD * random.standard_normal(_PAIRS)), max_tokens)
    target = _bounded(
        source * np.exp(_RATIO_SPREAD * random.standard_normal(_PAIRS)), max_tokens
    )
    pairs = _dataset(dictionary, seed, source, target)
    batches = pairs.batch_by_size(
        pairs.ordered_indices(), max_tokens=max_tokens, required_batch_size_multiple=8
    )
    chosen = random.choice(len(batches), size=count, replace=count > len(batches))
    return [pairs.collater([pairs[index] for index in batches[number]]) for number in chosen]


def translation_batch(
    dictionary: Dictionary, sentences: int, length: int, seed: int, with_target: bool = False
) -> dict[str, Any]:
    """One batch as fairseq-generate would see it: src_tokens (B, S), padded on the left.

    The longest sentence has ``length`` tokens, its end among them; the others are down to a tenth
    shorter. ``with_target``: as fairseq-train would see it, targets as long as sources.
    """
    shortest = max(2.0, length * _SHORTEST_SHARE)
    lengths = np.linspace(length, shortest, sentences).round().astype(np.int64)
    dataset = _dataset(dictionary, seed, *([lengths, lengths] if with_target else [lengths]))
    return dataset.collater([dataset[index] for index in range(sentences)])


def _dataset(dictionary: Dictionary, seed: int, *lengths: np.ndarray) -> LanguagePairDataset:
    """Sources, and targets if there are lengths for them."""
    sides: list[Any] = []
    for side, sizes in enumerate(lengths):
        sides += [_sentences(sizes, dictionary, seed + side), sizes, dictionary]
    # Not shuffled among those of one length, by a global seed: they are random as they are.
    return LanguagePairDataset(*sides, shuffle=False)


def _sentences(sizes: np.ndarray, dictionary: Dictionary, seed: int) -> list[Tensor]:
    """For each size a sentence (size,), its end among the tokens; the same for the same seed."""
    generator = torch.Generator().manual_seed(seed)
    size = (int(sizes.sum()),)
    tokens = torch.randint(dictionary.nspecial, len(dictionary), size, generator=generator)
    tokens[torch.from_numpy(sizes).cumsum(0) - 1] = dictionary.eos()
    return list(tokens.split(sizes.tolist()))


def _bounded(lengths: np.ndarray, max_tokens: int) -> np.ndarray:
    return np.clip(lengths.round(), _SHORTEST, min(_LONGEST, max_tokens)).astype(np.int64)
