"""A training with patience ends by fairseq's own --patience, and its results say so."""

from __future__ import annotations

from pathlib import Path

from fairseq_mhe.common.files import read_json
from fairseq_mhe.common.progress import Board
from fairseq_mhe.prepare.data_folder import open_data
from fairseq_mhe.runs import translation
from fairseq_mhe.runs.devices import Device
from fairseq_mhe.runs.train import train
from tests.fixtures.runs import open_run, settings
from tests.fixtures.small_runs import MADE


def test_training_ends_when_the_loss_no_longer_falls(tmp_path: Path) -> None:
    data = open_data(MADE / "data")
    never = dict.fromkeys(("save_interval", "save_interval_updates", "validate_interval"))
    never |= dict.fromkeys(("validate_interval_updates", "keep_interval_updates"))
    without_learning = settings(
        max_update=500,
        patience=2,
        lr=[0.0],
        keep_last_epochs=3,
        no_epoch_checkpoints=None,
        **never,
    )
    places = {"data": str(data.folder)}
    run = open_run(tmp_path / "r", {**without_learning, "data": data.identity}, places)
    with Board("updates") as board:
        train([run], Device(gpu=False, slots=1, threads=1), board)
        translation.make_model(run)
    metrics = read_json(run.metrics)
    (first, loss), *others = metrics["valid"]
    assert [point[1] for point in others] == [loss, loss]
    assert metrics["ended_by_patience"] == 3 * first < 500
    assert run.model.is_file()
