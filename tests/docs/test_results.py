"""What lies in results/: runs without the text of corpora, which is not ours to pass on."""

from __future__ import annotations

import tarfile
from pathlib import Path

import pytest

RESULTS = Path(__file__).parents[2] / "results"
ARCHIVES = sorted(RESULTS.glob("*/runs.tar.xz"))
#: Of a corpus, beside hypotheses of our own.
TEXTS = {"sources.txt", "references.txt", "references.tokens.txt"}


@pytest.mark.parametrize("archive", ARCHIVES, ids=lambda path: path.parent.name)
def test_kept_runs_hold_no_text_of_a_corpus(archive: Path) -> None:
    with tarfile.open(archive) as runs:
        names = {Path(name).name for name in runs.getnames()}
    assert "config.json" in names
    assert not names & TEXTS, "pack what fairseq-mhe keep has made, before a table is made of it"
    assert not any(name.endswith((".pt", ".lock")) for name in names)
