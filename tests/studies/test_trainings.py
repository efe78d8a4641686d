"""What studies of trainings leave in their folder, and what they ask for."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from fairseq_mhe.runs.run import Run
from studies import trainings


@pytest.mark.parametrize(("patience", "left"), [(0, ["last"]), (10, ["7", "8", "last"])])
def test_epochs_that_a_longer_training_would_average_stay(
    make_run: Callable[..., Run], patience: int, left: list[str]
) -> None:
    run = make_run("mha", 3)
    run.settings["training"]["patience"] = patience
    run.checkpoints.mkdir()
    names = ["_last", "_best", *(("7", "8") if patience else ("_1_20", "_2_40"))]
    for name in names:
        (run.checkpoints / f"checkpoint{name}.pt").touch()
    trainings._tidy(run)
    found = sorted(path.stem.removeprefix("checkpoint") for path in run.checkpoints.iterdir())
    assert [name.removeprefix("_") for name in found] == left
