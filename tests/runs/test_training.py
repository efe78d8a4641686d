"""Training goes on from the newest whole checkpoint, is never repeated, and its log gives the
curve.
"""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from rich.console import Console

from fairseq_mhe.common.errors import UserError
from fairseq_mhe.common.files import read_json
from fairseq_mhe.common.progress import Board
from fairseq_mhe.runs import devices
from fairseq_mhe.runs import train as training
from fairseq_mhe.runs.devices import Device, choose_device
from fairseq_mhe.runs.job import Job, settings_of
from fairseq_mhe.runs.resuming import restore
from fairseq_mhe.runs.train import learning_curve, training_arguments
from tests.fixtures.runs import TRAINING, open_run, settings

CPU = Device(gpu=False, slots=2, threads=1)
PLACES = {"data": "/data set"}


def save(folder: Path, name: str, updates: int) -> Path:
    folder.mkdir(exist_ok=True)
    state = {
        "model": {"w": torch.full((500,), float(updates))},
        "optimizer_history": [{"num_updates": updates}],
    }
    torch.save(state, folder / name)
    return folder / name


def updates_in(path: Path) -> int:
    return int(torch.load(path, weights_only=True)["model"]["w"][0])


def cut(path: Path, fraction: float) -> None:
    path.write_bytes(path.read_bytes()[: int(path.stat().st_size * fraction)])


@pytest.mark.parametrize("fraction", [0.0, 0.5, 0.99])
def test_after_a_truncated_last_checkpoint_the_newest_whole_one_is_used(
    tmp_path: Path, fraction: float
) -> None:
    for epoch, updates in ((1, 8), (1, 9), (2, 10)):
        save(tmp_path, f"checkpoint_{epoch}_{updates}.pt", updates)
    cut(save(tmp_path, "checkpoint_last.pt", 11), fraction)
    assert restore(tmp_path) == 10
    assert updates_in(tmp_path / "checkpoint_last.pt") == 10


def test_killed_before_the_copy_to_the_last_checkpoint(tmp_path: Path) -> None:
    save(tmp_path, "checkpoint_last.pt", 10)
    save(tmp_path, "checkpoint_2_20.pt", 20)
    assert restore(tmp_path) == 20
    assert updates_in(tmp_path / "checkpoint_last.pt") == 20


def test_half_written_files_go_aside_and_whole_ones_stay(tmp_path: Path) -> None:
    last = save(tmp_path, "checkpoint_last.pt", 10)
    before = last.stat().st_mtime_ns
    cut(save(tmp_path, "checkpoint_best.pt", 10), 0.4)
    cut(save(tmp_path, "checkpoint_2_11.pt.tmp", 11), 0.4)
    save(tmp_path, "checkpoint_1_10.pt", 10)
    assert restore(tmp_path) == 10
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "checkpoint_1_10.pt",
        "checkpoint_best.pt.damaged",
        "checkpoint_last.pt",
    ]
    assert last.stat().st_mtime_ns == before


def test_without_a_whole_checkpoint_training_begins_anew(tmp_path: Path) -> None:
    assert restore(tmp_path) == 0
    cut(save(tmp_path, "checkpoint_last.pt", 5), 0.5)
    assert restore(tmp_path) == 0
    assert [path.name for path in tmp_path.iterdir()] == ["checkpoint_last.pt.damaged"]


def line(tag: str, **values: object) -> str:
    return f"2026-11-21 03:58:37 | INFO | {tag} | {json.dumps(values)}"


def test_the_curve_counts_repeated_updates_once_and_skips_cut_lines() -> None:
    lines = [
        "--- fairseq-train from update 0",
        line("train_inner", epoch=1, update=0.1, loss="9.5", wps="100", num_updates="10"),
        line("train_inner", epoch=1, update=0.2, loss="9.0", wps="300", num_updates="20"),
        line("valid", epoch=1, valid_loss="9.4", valid_nll_loss="8.5", valid_num_updates="20"),
        line("train_inner", epoch=1, update=0.3, loss="1.0", wps="5", num_updates="30")[:-20],
        "--- fairseq-train from update 10, after a kill",
        line("train_inner", epoch=1, update=0.2, loss="8.9", wps="280", num_updates="20"),
        line("valid", epoch=1, valid_loss="9.3", valid_nll_loss="8.4", valid_num_updates="20"),
        line("train_inner", epoch=1, update=0.3, loss="8.0", wps="200", num_updates="30"),
        line("train", epoch=1, train_loss="9", train_num_updates="30"),
    ]
    assert learning_curve(lines) == {
        "train": [[10, 9.5], [20, 8.9], [30, 8.0]],
        "valid": [[20, 8.4]],
        "tokens_per_second": 200.0,
    }
    assert learning_curve([])["tokens_per_second"] is None


@pytest.mark.parametrize(
    ("models", "cores", "expected"),
    [
        (2, 2, (2, 1)),
        (2, 8, (2, 4)),
        (1, 2, (1, 2)),
        (9, 2, (2, 1)),
        (9, 4, (4, 1)),
        (2, 64, (2, 8)),
        (2, 1, (1, 1)),
    ],
)
def test_models_train_side_by_side_on_the_cores(
    monkeypatch: pytest.MonkeyPatch, models: int, cores: int, expected: tuple[int, int]
) -> None:
    monkeypatch.setattr(devices, "cores", lambda: cores)
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    device = choose_device(models, gpu=False)
    assert (device.slots, device.threads) == expected
    assert device.flags() == ["--cpu"]
    assert choose_device(models, gpu=True).slots == 1
    assert choose_device(models, gpu=True).flags() == []


def test_mixed_kinds_are_given_by_place() -> None:
    mixed = {"encoder": "mhe_mul", "decoder": "mha", "cross": "mha"}
    options = settings_of("tiny", mixed, 1, TRAINING, {})["options"]
    assert [options[f"{place}_attention"] for place in mixed] == list(mixed.values())
    assert "attention" not in options
    assert settings()["options"]["attention"] == "mha"


def test_two_kinds_differ_in_one_word(tmp_path: Path) -> None:
    words = []
    for kind in ("mha", "mhe_mul"):
        run = open_run(tmp_path / kind, settings(kind), PLACES)
        words.append([w.replace(str(tmp_path / kind), "RUN") for w in training_arguments(run, CPU)])
    assert [pair for pair in zip(*words, strict=True) if pair[0] != pair[1]] == [("mha", "mhe_mul")]


def test_tensorboards_logs_are_in_the_run_folder(tmp_path: Path) -> None:
    run = open_run(tmp_path / "r", settings(), PLACES)
    words = training_arguments(run, CPU, tensorboard=True)
    assert words[words.index("--tensorboard-logdir") + 1] == str(tmp_path / "r" / "tensorboard")
    assert "--tensorboard-logdir" not in training_arguments(run, CPU)


@pytest.mark.parametrize(
    ("before", "now", "expected"), [(1, 2, 3), (2, 1, 12), (2, 4, 3), (2, 2, 6)]
)
def test_another_number_of_processes_goes_on_at_the_same_mini_batch(
    tmp_path: Path, before: int, now: int, expected: int
) -> None:
    path = save(tmp_path, "checkpoint_1_9.pt", 9)
    state = torch.load(path, weights_only=True)
    state["cfg"] = {"distributed_training": {"distributed_world_size": before}}
    state["extra_state"] = {"train_iterator": {"epoch": 1, "iterations_in_epoch": 6}}
    torch.save(state, path)
    assert restore(tmp_path, now) == 9
    found = torch.load(tmp_path / "checkpoint_last.pt", weights_only=True)
    assert found["extra_state"]["train_iterator"]["iterations_in_epoch"] == expected
    assert restore(tmp_path, now) == 9
    again = torch.load(tmp_path / "checkpoint_last.pt", weights_only=True)
    assert again["extra_state"]["train_iterator"]["iterations_in_epoch"] == expected, "once only"


def test_mini_batches_of_another_size_do_not_go_on(tmp_path: Path) -> None:
    path = save(tmp_path, "checkpoint_1_9.pt", 9)
    state = torch.load(path, weights_only=True)
    state["cfg"] = {
        "distributed_training": {"distributed_world_size": 2},
        "dataset": {"batch_size": 8},
    }
    state["extra_state"] = {"train_iterator": {"epoch": 1, "iterations_in_epoch": 6}}
    torch.save(state, path)
    told = "comes of mini-batches of 8 examples on 2 devices, not of 16: go on with as many devices"
    with pytest.raises(UserError, match=told):
        restore(tmp_path, 1, {"batch_size": 16})
    assert restore(tmp_path, 1, {"batch_size": 8}) == 9


def test_training_loses_no_sentence_and_logs_between_checkpoints(tmp_path: Path) -> None:
    words = training_arguments(open_run(tmp_path / "r", settings(), PLACES), CPU)
    assert words[words.index("--required-batch-size-multiple") + 1] == "1"
    assert words[0] == "/data set/bin"
    assert 1 <= int(words[words.index("--log-interval") + 1]) <= TRAINING.interval


def board() -> Board:
    return Board("updates", console=Console(file=io.StringIO()))


@pytest.mark.parametrize("failing", [0, 1])
def test_one_process_that_fails_ends_all(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, failing: int
) -> None:
    """The other would wait for it for ever."""
    children = []

    class Pair(FakeChild):
        def __init__(self, *words: Any) -> None:
            super().__init__(*words)
            self.rank = len(children)
            self.stopped = False
            children.append(self)

        def running(self) -> bool:
            return self.rank != failing

        def failed(self) -> bool:
            return self.rank == failing

        def check(self, what: str) -> None:
            if self.failed():
                raise UserError(f"{what} failed in process {self.rank}")

        def stop(self) -> None:
            self.stopped = True

    monkeypatch.setattr(training, "Child", Pair)
    run = a_run(tmp_path, update_freq=[2])
    with pytest.raises(UserError, match=f"failed in process {failing}"), board() as shown:
        training.train([run], Device(False, 1, 1, workers=2), shown)
    assert [child.stopped for child in children] == [True, True]
    assert run.steps.status()["state"] == "failed"


class FakeChild:
    """Stands for fairseq-train: writes a checkpoint of so many updates, or fails."""

    updates = TRAINING.updates
    started: list[list[str]] = []  # noqa: RUF012 - cleared by the fixture

    def __init__(
        self,
        module: str,
        arguments: list[str],
        log: Path,
        threads: int,
        headline: str,
        environment: dict[str, str],
    ) -> None:
        self.started.append(arguments)
        save(Path(arguments[arguments.index("--save-dir") + 1]), "checkpoint_last.pt", self.updates)
        log.write_text(line("train_inner", loss="3.0", wps="50", num_updates="40") + "\n")

    def running(self) -> bool:
        return False

    def failed(self) -> bool:
        return False

    def new_lines(self) -> list[str]:
        return [
            "/x.py:1: UserWarning: look out",
            line("train_inner", loss="3.0", wps="50", num_updates="40"),
        ]

    def check(self, what: str) -> None:
        pass

    def stop(self) -> None:
        pass


@pytest.fixture
def fake_child(monkeypatch: pytest.MonkeyPatch) -> type[FakeChild]:
    monkeypatch.setattr(training, "Child", FakeChild)
    monkeypatch.setattr(FakeChild, "started", [])
    return FakeChild


def a_run(tmp_path: Path, **changes: Any) -> Job:
    return open_run(tmp_path / "r", settings(**changes), PLACES)


def test_a_finished_training_is_not_started_again(
    tmp_path: Path, fake_child: type[FakeChild]
) -> None:
    run = a_run(tmp_path)
    for _ in range(2):
        with board() as shown:
            training.train([run], CPU, shown)
    assert len(fake_child.started) == 1
    assert read_json(run.metrics)["tokens_per_second"] == 50.0


def test_killed_after_its_last_update_it_is_not_started_again(
    tmp_path: Path, fake_child: type[FakeChild]
) -> None:
    run = a_run(tmp_path)
    save(run.checkpoints, "checkpoint_last.pt", TRAINING.updates)
    run.log.write_text(line("train_inner", loss="3.0", wps="70", num_updates="40") + "\n")
    with board() as shown:
        training.train([run], CPU, shown)
    assert fake_child.started == []
    assert read_json(run.metrics)["tokens_per_second"] == 70.0


def test_a_training_that_ends_early_is_an_error(
    tmp_path: Path, fake_child: type[FakeChild], monkeypatch: pytest.MonkeyPatch
) -> None:
    run = a_run(tmp_path)
    monkeypatch.setattr(fake_child, "updates", 39)
    with pytest.raises(UserError, match="ended after 39 of 40 updates"), board() as shown:
        training.train([run], CPU, shown)
    assert run.steps.status()["state"] == "failed"
    assert not training.trained(run)


def test_real_warnings_reach_the_screen_once(
    tmp_path: Path, fake_child: Callable[..., Any]
) -> None:
    shown = board()
    with shown:
        training.train([a_run(tmp_path)], CPU, shown)
    output = shown.console.file
    assert isinstance(output, io.StringIO)
    assert output.getvalue().count("warning: look out") == 1


def test_where_it_was_trained_is_told_of_every_start() -> None:
    """Its speed is of them all."""
    start = "--- 2026-11-23 08:34:23 fairseq-train from update"
    cpu, gpu = (
        "on the CPU, 1 side by side with 1 thread each",
        "on a GPU, one model at a time, bf16",
    )
    log = [f"{start} 0, {cpu}", "2026 | INFO | x", f"{start} 61, {gpu}", f"{start} 99, {gpu}"]
    assert training._places(log) == f"{cpu}, then {gpu}"
    assert training._places(["a log of another program"]) == ""
