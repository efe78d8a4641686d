"""Checkpoints, run folders and data folders of version 0.1.0 are read as they are."""

from __future__ import annotations

import json
import shutil
from importlib import metadata
from pathlib import Path

import pytest

from fairseq_mhe import cli
from fairseq_mhe.checkpoints.inspection import inspect
from fairseq_mhe.common.files import read_json
from fairseq_mhe.prepare.data_folder import open_prepared
from fairseq_mhe.runs.resuming import LAST

MADE = Path(__file__).parent / "fixtures" / "made_by_0.1.0"
KINDS = ("mha", "mhe_mul")
CONFIG = read_json(MADE / "runs" / "tiny-mha-seed1" / "config.json")
#: What the keys of steps hold: with other versions they are done again, as they shall be.
VERSIONS = ("sacrebleu", "subword-nmt", "sacremoses")
same_versions = pytest.mark.skipif(
    any(metadata.version(name) != CONFIG["versions"][name] for name in VERSIONS),
    reason="the installed versions are not those that made the folders",
)


@pytest.fixture
def made(tmp_path: Path) -> Path:
    """A copy of the folders, in a path that they were not made in."""
    return Path(shutil.copytree(MADE, tmp_path / "moved since"))


def run_of(folder: Path, kind: str) -> Path:
    return folder / "runs" / f"tiny-{kind}-seed1"


@pytest.mark.parametrize("kind", KINDS)
def test_a_checkpoint_is_inspected(kind: str) -> None:
    found = inspect(run_of(MADE, kind) / "model.pt")
    counts = read_json(run_of(MADE, kind) / "counts.json")
    assert found.kinds == dict.fromkeys(("encoder", "decoder", "cross"), kind)
    assert found.parameters == counts["total_parameters"]
    assert sum(found.attention_parameters.values()) == counts["attention_parameters"]
    assert (found.updates, found.row_differences["encoder_embed_dim"]) == (4, 8)
    assert found.averaged_from == [f"checkpoint_1_{update}.pt" for update in (1, 2, 3, 4)]


@pytest.mark.parametrize("kind", KINDS)
def test_a_checkpoint_folds_and_translates_the_same(
    made: Path, capsys: pytest.CaptureFixture[str], kind: str
) -> None:
    words = ["fold", str(run_of(made, kind) / "model.pt"), str(made / "folded.pt")]
    assert cli.main([*words, "--data", str(made / "data")]) == 0
    assert "20 of 20 hypotheses are the same" in capsys.readouterr().out


def test_a_checkpoint_is_converted(made: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["convert", "--to", "gqa", "--kv-heads", "2", str(run_of(made, "mha") / "model.pt")]
    assert cli.main([*words, str(made / "gqa.pt"), "--data", str(made / "data"), "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    # As many heads as before: nothing is lost.
    assert report["tried"]["fit"]["loss"] == pytest.approx(report["loss_before"], abs=1e-4)


def test_a_data_folder_is_the_one_that_the_run_was_trained_on() -> None:
    data = open_prepared(MADE / "data")
    assert data.identity == CONFIG["settings"]["data"]
    subwords = (data.folder / "subword" / "test.de").read_text(encoding="utf-8").splitlines()
    assert (
        data.detokenise(subwords) == data.text("test", 1).read_text(encoding="utf-8").splitlines()
    )


@same_versions
def test_a_prepared_folder_is_not_prepared_again(made: Path) -> None:
    before = {path: path.stat().st_mtime_ns for path in (made / "data" / "bin").iterdir()}
    words = ["prepare", "--source-lang", "en", "--target-lang", "de", "--vocab-size", "100"]
    for split in ("train", "valid", "test"):
        words += [f"--{split}", str(made / "text" / split)]
    assert cli.main([*words, "--workers", "1", "--out", str(made / "data")]) == 0
    assert before == {path: path.stat().st_mtime_ns for path in (made / "data" / "bin").iterdir()}
    assert (
        read_json(made / "data" / "manifest.json")["steps"]
        == (read_json(MADE / "data" / "manifest.json")["steps"])
    )


@same_versions
def test_finished_runs_are_not_done_again(made: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The table is the old one but for the sizes of the row, which this code knows as larger.

    And but for what is compared with a baseline of 0 BLEU.
    """
    for kind in KINDS:
        # The last checkpoint itself, with its optimizer's state, would be 100 KB more.
        (run_of(made, kind) / "checkpoints").mkdir()
        (run_of(made, kind) / "checkpoints" / LAST).touch()
    words = ["run-table", "--rows", "tiny", "--kinds", ",".join(KINDS), "--updates", "4", "--cpu"]
    runs = made / "runs"
    assert cli.main([*words, "--data", str(made / "data"), "--out", str(runs)]) == 0
    for kind in KINDS:
        for name in ("status.json", "metrics.json", "test/scores.json", "test/hypotheses.txt"):
            was = run_of(MADE, kind) / name
            assert (run_of(made, kind) / name).read_bytes() == was.read_bytes(), name
    own = ("layers", "width", "heads", "head_width")
    own += ("valid_loss", "precision", "bleu4", "embedding")  # what 0.1.0 did not tell
    tables = []
    for folder in (MADE, made):
        rows = json.loads((folder / "runs" / "table.json").read_text(encoding="utf-8"))
        tables.append([{k: v for k, v in row.items() if k not in own} for row in rows])
    # Version 0.1.0 gave a p-value against a baseline that has learned nothing.
    assert [row["p_value"] for row in tables[0]] == [None, 1.0]
    tables[0][1]["p_value"] = None
    assert tables[0] == tables[1]
    assert "| tiny  | mhe_mul " in capsys.readouterr().out
