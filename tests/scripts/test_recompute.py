"""scripts/recompute.py: tables from archives."""

import json
import sys
import tarfile
from collections.abc import Callable
from pathlib import Path

import pytest

import recompute
from fairseq_mhe.common.errors import UserError
from fairseq_mhe.report.results import gather
from fairseq_mhe.report.translation_table import write_table
from fairseq_mhe.runs.job import Job
from tests.fixtures.runs import REFERENCES


@pytest.fixture
def archived(make_run: Callable[..., Job], tmp_path: Path) -> Path:
    """Make tables of one and of two seeds, an archive of all runs, and references."""
    runs = [
        make_run(kind, wrong, seed)
        for kind, wrong in (("mha", 3), ("mhe_mul", 6))
        for seed in (1, 2)
    ]
    write_table(gather(run.folder for run in runs), tmp_path / "both", "A title")
    for seed in (1, 2):
        of_seed = [run.folder for run in runs if run.seed == seed]
        write_table(gather(of_seed), tmp_path / f"seed{seed}", "A title")
    with tarfile.open(tmp_path / "runs.tar.xz", "w:xz") as archive:
        for run in runs:
            archive.add(run.folder, run.folder.name)
    (tmp_path / "references").write_text("".join(f"{line}\n" for line in REFERENCES))
    return tmp_path


def call(monkeypatch: pytest.MonkeyPatch, folder: Path, *words: object) -> None:
    options = ["--archives", folder / "runs.tar.xz", "--references", folder / "references"]
    line = ["recompute.py", *words, *options, "--language", "de"]
    monkeypatch.setattr(sys, "argv", list(map(str, line)))
    recompute.main()


def test_a_table_is_computed_again_from_an_archive(
    archived: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A row whose seeds are in several tables gets all of them."""
    table = archived / "both" / "table.json"
    expected = json.loads(table.read_text())
    outdated = [{**row, "p_value": 0.9, "prr_low": 1.0, "bleu_confidence": 0.1} for row in expected]
    table.write_text(json.dumps(outdated))
    call(monkeypatch, archived, table)
    assert json.loads(table.read_text()) == expected
    tables = [archived / f"seed{seed}" / "table.json" for seed in (1, 2)]
    call(monkeypatch, archived, *tables, "--out", archived / "merged.md")
    assert json.loads((archived / "merged.json").read_text()) == expected
    text = (archived / "merged.md").read_text()
    for row in expected:
        assert f" {row['bleu']:.2f} |" in text


def test_other_references_are_refused(archived: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (archived / "references").write_text("etwas anderes\n" * len(REFERENCES))
    with pytest.raises(UserError):
        call(monkeypatch, archived, archived / "both" / "table.json")
