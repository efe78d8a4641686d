"""A training with patience ends by fairseq's own --patience, and its results say so."""

from __future__ import annotations

from pathlib import Path

from fairseq_mhe.common.files import read_json
from fairseq_mhe.common.progress import Board
from fairseq_mhe.prepare.data_folder import open_prepared
from fairseq_mhe.runs import pipeline, training
from fairseq_mhe.runs.devices import Device
from fairseq_mhe.runs.run import open_run
from tests.fixtures.runs import settings
from tests.fixtures.small_runs import MADE


def test_training_ends_when_the_loss_no_longer_falls(tmp_path: Path) -> None:
    data = open_prepared(MADE / "data")
    without_learning = settings(updates=500, patience=2, lr=0.0)
    run = open_run(tmp_path / "r", {**without_learning, "data": data.identity}, {})
    with Board("updates") as board:
        pipeline.train([run], data, Device(gpu=False, slots=1, threads=1), board)
    metrics = read_json(run.metrics)
    (first, loss), *others = metrics["valid"]
    assert [point[1] for point in others] == [loss, loss]
    assert metrics["ended_by_patience"] == 3 * first < 500
    assert training.trained(run)
    assert run.model.is_file()
