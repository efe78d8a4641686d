"""Tests of the embedded corpus as a data folder, from Python and through the script."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from fairseq_mhe.prepare.config import SPLITS
from fairseq_mhe.prepare.corpora.home_assistant import CORPUS, read_corpus
from fairseq_mhe.prepare.manifest import read_manifest
from fairseq_mhe.prepare.text import read_lines

SCRIPT = Path(__file__).parents[3] / "data-prep" / "home_assistant_en_de.sh"
Pairs = list[tuple[str, str]]


def run_script(*words: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHON": sys.executable}
    return subprocess.run(
        ["bash", SCRIPT, *words], env=environment, capture_output=True, text=True, check=False
    )


def test_the_first_pairs_are_taken_unchanged(prepared: Path, corpus: dict[str, Pairs]) -> None:
    for split, size in (("train", 300), ("valid", 30), ("test", 30)):
        sides = [read_lines(prepared / "raw" / f"{split}.{lang}") for lang in ("en", "de")]
        assert list(zip(*sides, strict=True)) == corpus[split][:size]


def test_the_script_prepares_a_folder_with_a_blank_in_its_name(tmp_path: Path) -> None:
    data = tmp_path / "my data"
    done = run_script("--out", str(data), "--limit", "50", "--vocab-size", "200", "--workers", "1")
    assert (done.returncode, done.stdout) == (0, f"{data}\n")
    assert read_manifest(data)["lines"] == {"train": 50, "valid": 5, "test": 5}
    assert (data / "bin" / "dict.de.txt").exists()


def test_the_script_explains_itself_and_tells_errors_in_one_line() -> None:
    assert "--vocab-size N" in run_script("--help").stdout
    done = run_script("--limit", "3")
    assert done.returncode == 2
    assert "home_assistant_en_de.sh: error: argument --limit: '3' is no whole number" in done.stderr


def test_the_corpus_has_its_three_splits(corpus: dict[str, Pairs]) -> None:
    assert {split: len(pairs) for split, pairs in corpus.items()} == {
        "train": 30_363,
        "valid": 1088,
        "test": 1109,
    }
    assert tuple(corpus) == SPLITS
    assert read_corpus(CORPUS) == corpus
