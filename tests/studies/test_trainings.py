"""What studies of trainings leave in their folder, and what they ask for."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from fairseq_mhe import cli
from fairseq_mhe.runs.run import Run
from studies import trainings
from studies.__main__ import main
from tests.fixtures.small_runs import KINDS, MADE, run_of


@pytest.fixture
def finished_only() -> Callable[..., list[str]]:
    """The words that report the small runs."""

    def words(out: Path, *more: str) -> list[str]:
        line = ["gap-study", "--data", str(MADE / "data"), "--out", str(out), "--seeds", "1"]
        line += ["--updates", "4", "--precision", "float32", "--only", "reference"]
        return [*line, "--finished-only", *more]

    return words


def test_kept_runs_are_reported(
    finished_only: Callable[..., list[str]], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out"
    assert cli.main(["keep", *(str(run_of(MADE, k)) for k in KINDS), "--out", str(out)]) == 0
    assert main(finished_only(out, "--cpu")) == 0, capsys.readouterr().err
    assert "mhe_mul" in (out / "gap.md").read_text()


def test_what_is_only_reported_needs_no_gpu_and_leaves_the_runs_to_others(
    finished_only: Callable[..., list[str]], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out"
    shutil.copytree(MADE / "runs", out)
    of_another = out / "tiny-mha-seed1" / "test" / ".scores.json.4321.part"
    of_another.touch()
    assert main(finished_only(out, "--gpus", "99")) == 0, capsys.readouterr().err
    assert of_another.exists()


def test_of_a_scored_runs_checkpoints_the_last_stays(make_run: Callable[..., Run]) -> None:
    run = make_run("mha", 3)
    run.checkpoints.mkdir()
    for name in ("_last", "_best", "7", "_1_20"):
        (run.checkpoints / f"checkpoint{name}.pt").touch()
    trainings._tidy(run)
    assert [path.name for path in run.checkpoints.iterdir()] == ["checkpoint_last.pt"]
