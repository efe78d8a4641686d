"""Training ends when the loss on valid no longer falls, also where it was stopped in between."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest
import torch

from fairseq_mhe.common.files import read_json
from fairseq_mhe.common.progress import Board
from fairseq_mhe.prepare.data_folder import DataFolder
from fairseq_mhe.runs import trainers, training
from fairseq_mhe.runs.devices import Device
from fairseq_mhe.runs.patience import Patience, saved_updates
from fairseq_mhe.runs.run import Run, open_run
from tests.fixtures.runs import settings
from tests.runs.test_training import save

DATA = DataFolder(Path("/data"), ("en", "de"), {"steps": {}})
ONE = Device(gpu=False, slots=1, threads=1)


def of(losses: list[float], most: int = 2) -> Patience:
    """The patience after epochs of ten updates that ended with these losses."""
    patience = Patience(most)
    for epoch, loss in enumerate(losses, start=1):
        patience.see({"epoch": epoch, "valid_num_updates": 10 * epoch, "valid_loss": loss})
    return patience


@pytest.mark.parametrize(
    ("losses", "over"),
    [
        ([5.0], None),
        ([5.0, 4.0, 4.1], None),
        ([5.0, 4.0, 4.1, 4.0], 40),  # as low as before is not lower
        ([5.0, 4.0, 4.1, 3.9, 4.0], None),
        ([5.0, 4.0, 4.1, 4.2, 3.0], 40),
    ],
)
def test_it_is_over_after_so_many_epochs_without_a_new_lowest(
    losses: list[float], over: int | None
) -> None:
    patience = of(losses)
    assert [made for made in range(0, 60, 10) if patience.is_over(made)] == (
        [made for made in range(0, 60, 10) if made >= over] if over else []
    )
    assert not of(losses, most=0).is_over(1000)


def test_what_a_restart_repeats_counts_once() -> None:
    patience = of([5.0, 4.0, 4.1])
    patience.see({"epoch": 3, "valid_num_updates": 30, "valid_loss": 4.1})
    assert not patience.is_over(30)


def test_a_saved_checkpoint_tells_its_updates() -> None:
    begun = "2026-11-22 03:00:00 | INFO | fairseq.checkpoint_utils | "
    line = f"{begun}Saved checkpoint /a (b)/checkpoint4.pt (epoch 4 @ 40 updates, score 4.0) (wr"
    assert saved_updates(line) == 40
    assert saved_updates(f"{begun}Preparing to save checkpoint for epoch 4 @ 40 updates") is None


FAKE = """
import json, sys, time
for epoch, loss in enumerate({losses}, start={first}):
    values = json.dumps(dict(epoch=epoch, valid_loss=loss, valid_nll_loss=loss,
                             valid_num_updates=10 * epoch))
    print("2026 | INFO | valid | " + values, flush=True)
    print(f"2026 | INFO | x | Saved checkpoint c (epoch {{epoch}} @ {{10 * epoch}} updates, score")
    sys.stdout.flush()
    time.sleep(0.3)
time.sleep(3600)
"""


def trained(folder: Path, losses: list[float], first: int, monkeypatch: pytest.MonkeyPatch) -> Run:
    """A run of a command that logs as fairseq-train does and would not end by itself."""
    run = open_run(folder, settings(updates=1000, patience=2), {})
    (folder / "fake_train.py").write_text(FAKE.format(losses=losses, first=first))
    monkeypatch.setenv("PYTHONPATH", str(folder))
    child = trainers.Child
    monkeypatch.setattr(
        trainers, "Child", lambda module, words, *more: child("fake_train", [], *more)
    )
    save(run.checkpoints, "checkpoint_last.pt", 10 * (first + len(losses) - 1))
    monkeypatch.setattr(training, "restore", lambda *_: 10 * (first - 1))
    with Board("updates") as board:
        training.train([run], DATA, ONE, board)
    return run


def test_training_ends_by_patience_and_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun = time.monotonic()
    run = trained(tmp_path, [5.0, 4.0, 4.1, 4.2], 1, monkeypatch)
    assert time.monotonic() - begun < 1800
    assert read_json(run.metrics)["ended_by_patience"] == 40
    assert training.trained(run)


def test_how_long_it_has_waited_is_not_forgotten(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """fairseq's own --patience would begin to wait anew."""
    told = {"epoch": 1, "valid_loss": 4, "valid_nll_loss": 4, "valid_num_updates": 10}
    later = {**told, "epoch": 2, "valid_loss": 4.5, "valid_num_updates": 20}
    lines = [f"2026 | INFO | valid | {json.dumps(values)}\n" for values in (told, later)]
    (tmp_path / "train.log").write_text("".join(lines))
    run = trained(tmp_path, [4.4], 3, monkeypatch)
    assert read_json(run.metrics)["ended_by_patience"] == 30


@pytest.mark.parametrize(("position", "goes_on"), [(3, True), (0, False)])
def test_where_a_smaller_limit_ended_it_within_an_epoch_that_epoch_has_not_ended(
    position: int, goes_on: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A training that was not cut there would not have ended by the loss that it had there."""
    run = open_run(tmp_path, settings(updates=1000, patience=2), {})
    log = ""
    for epoch, updates, loss in ((1, 10, 5.0), (2, 20, 4.0), (3, 30, 4.1), (4, 35, 4.2)):
        values = {"epoch": epoch, "valid_num_updates": updates, "valid_loss": loss}
        log += f"2026 | INFO | valid | {json.dumps(values)}\n"
    run.log.write_text(log)
    state = {"model": {}, "optimizer_history": [{"num_updates": 35}]}
    state["extra_state"] = {"train_iterator": {"iterations_in_epoch": position}}
    run.checkpoints.mkdir()
    torch.save(state, run.checkpoints / "checkpoint_last.pt")
    started: list[object] = []
    monkeypatch.setattr(training, "Trainers", lambda *words: started.append(words))
    with Board("updates") as board:
        training._Training(run, DATA, ONE, 0, board, False)
    assert bool(started) is goes_on
