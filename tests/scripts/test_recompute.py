"""scripts/recompute.py: tables from archives."""

import json
import sys
import tarfile
from collections.abc import Callable
from pathlib import Path

import pytest

import recompute
from fairseq_mhe.report.results import gather
from fairseq_mhe.report.translation_table import write_table
from fairseq_mhe.runs.job import Job
from tests.fixtures.runs import REFERENCES


def test_a_table_is_computed_again_from_an_archive(
    make_run: Callable[..., Job], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A row whose seeds are in several tables gets all of them."""
    wrong = {"mha": 3, "mhe_mul": 6}
    runs = [make_run(kind, number, seed) for kind, number in wrong.items() for seed in (1, 2)]
    write_table(gather(run.folder for run in runs), tmp_path / "both", "A title")
    tables = []
    for seed in (1, 2):
        of_seed = [run.folder for run in runs if run.seed == seed]
        write_table(gather(of_seed), tmp_path / f"seed{seed}", "A title")
        tables.append(tmp_path / f"seed{seed}" / "table.json")
    with tarfile.open(tmp_path / "runs.tar.xz", "w:xz") as archive:
        for run in runs:
            archive.add(run.folder, run.folder.name)
    (tmp_path / "references").write_text("".join(f"{line}\n" for line in REFERENCES))
    words = ["recompute.py", *tables, "--out", tmp_path / "merged.md", "--language", "de"]
    words += ["--archives", tmp_path / "runs.tar.xz", "--references", tmp_path / "references"]
    monkeypatch.setattr(sys, "argv", list(map(str, words)))
    recompute.main()
    merged, both = (tmp_path / name for name in ("merged.json", "both/table.json"))
    assert json.loads(merged.read_text()) == json.loads(both.read_text())
