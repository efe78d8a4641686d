"""The embedded corpus as a data folder: its pairs, unchanged."""

from __future__ import annotations

from pathlib import Path

from fairseq_mhe.prepare.config import SPLITS
from fairseq_mhe.prepare.text import read_lines
from tests.fixtures.text import Pairs


def test_the_first_pairs_are_taken_unchanged(prepared: Path, corpus: dict[str, Pairs]) -> None:
    sizes = dict(zip(SPLITS, (30_363, 1088, 1109), strict=True))
    assert {split: len(pairs) for split, pairs in corpus.items()} == sizes
    for split, size in (("train", 300), ("valid", 30), ("test", 30)):
        sides = [read_lines(prepared / "raw" / f"{split}.{lang}") for lang in ("en", "de")]
        assert list(zip(*sides, strict=True)) == corpus[split][:size]
