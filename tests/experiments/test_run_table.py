"""run-table by the real script: the table, unfinished runs.

test_quickstart.py kills and repeats a quickstart, which makes its table in the same way.
"""

import json
import shutil
from pathlib import Path

from fairseq_mhe import cli
from fairseq_mhe.prepare.manifest import read_manifest
from fairseq_mhe.report.significance import MIN_BASELINE_BLEU
from fairseq_mhe.report.translation_table import FILES
from tests.fixtures.runs import HELD_OUT
from tests.fixtures.trained import TABLE_UPDATES, table_words

KINDS = ("mha", "mhe_mul")


def test_run_table_ends_with_the_table(table: Path) -> None:
    printed = (table.parent / "table.stdout").read_text()
    assert printed.startswith((table / "table.md").read_text())
    _, _, samples = (table / "samples.md").read_text().partition("\n\n")
    assert printed.endswith(f"\n{samples}")
    assert all((table / name).stat().st_size > 0 for name in FILES)
    mha, mhe = json.loads((table / "table.json").read_text())
    assert [(cell["row"], cell["attention"]) for cell in (mha, mhe)] == [("tiny", k) for k in KINDS]
    assert (mha["attention_parameters"], mhe["attention_parameters"]) == (393_216, 174_336)
    assert (mha["updates"], mha["batch"], mha["dropout"]) == (TABLE_UPDATES, "512 tokens", 0.1)
    assert (mhe["p_value"] is None) == (mha["bleu"] < MIN_BASELINE_BLEU)
    assert mha["p_value"] is None
    pairs = read_manifest(table.parent / "miniature data")["lines"]["train"]
    heading = f"# en-de, {pairs} pairs, {TABLE_UPDATES} updates: recipe changed by options"
    assert (table / "table.md").read_text().startswith(heading)
    scores = json.loads((table / "tiny-mha-seed1" / "test" / "scores.json").read_text())
    assert scores["sentences"] == HELD_OUT
    screen = (table.parent / "table.stderr").read_text()
    assert f"{TABLE_UPDATES} updates, batches of 512 = 256 x 1 x update-freq 2" in screen


def test_a_table_names_the_unfinished_runs(miniature: Path, table: Path, tmp_path: Path) -> None:
    for name in ("tiny-mha-seed1", "tiny-mhe_mul-seed1"):
        shutil.copytree(table / name, tmp_path / name)
    words = table_words(miniature, tmp_path, "--finished-only", rows="tiny,small")
    assert cli.main(["run-table", *words]) == 0
    cells = json.loads((tmp_path / "table.json").read_text())
    assert [cell["row"] for cell in cells] == ["tiny", "tiny"]
    note = "Not finished, and left out: small-mha-seed1, small-mhe_mul-seed1."
    assert note in (tmp_path / "table.md").read_text()
    assert not (tmp_path / "small-mha-seed1" / "checkpoints").exists()
