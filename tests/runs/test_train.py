"""Jobs in the slots of a device: arguments of fairseq-train, failures, resuming, learning curve."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from fairseq_mhe.common.errors import UserError
from fairseq_mhe.common.files import read_json
from fairseq_mhe.runs import train as training
from fairseq_mhe.runs.devices import Device
from fairseq_mhe.runs.job import Job
from fairseq_mhe.runs.train import learning_curve, training_arguments
from tests.fixtures.checkpoints import save_weights
from tests.fixtures.runs import TRAINING, open_run, settings, train_jobs

Patch = pytest.MonkeyPatch

CPU = Device(gpu=False, slots=2, threads=1)
START = "--- 2026-11-23 08:34:23 fairseq-train from update"
INPUT_PATHS = {"data": "/data set"}


def line(tag: str, **values: object) -> str:
    return f"2026-11-21 03:58:37 | INFO | {tag} | {json.dumps(values)}"


def test_the_curve_counts_repeated_updates_once_and_skips_cut_lines() -> None:
    lines = [
        f"{START} 0, on the CPU",
        line("train_inner", epoch=1, clip=None, loss="9.5", wps="100", num_updates="10"),
        line("train_inner", epoch=1, update=0.2, loss="9.0", wps="300", num_updates="20"),
        line("valid", epoch=1, valid_loss="9.4", valid_nll_loss="8.5", valid_num_updates="20"),
        line("train_inner", epoch=1, update=0.3, loss="1.0", wps="5", num_updates="30")[:-20],
        f"{START} 10, on a GPU",
        line("train_inner", epoch=1, update=0.2, loss="8.9", wps="280", num_updates="20"),
        line("valid", epoch=1, valid_loss="9.3", valid_nll_loss="8.4", valid_num_updates="20"),
        line("train_inner", epoch=1, update=0.3, loss="8.0", wps="200", num_updates="30"),
        line("train", epoch=1, train_loss="9", train_num_updates="30"),
    ]
    assert learning_curve(lines) == {
        "train": [[10, 9.5], [20, 8.9], [30, 8.0]],
        "valid": [(20, 8.4)],
        "tokens_per_second": 200.0,
    }
    assert learning_curve([])["tokens_per_second"] is None


def arguments(folder: Path, kind: str, **changes: Any) -> list[str]:
    job = open_run(folder / kind, settings(kind, **changes), INPUT_PATHS)
    return [word.replace(str(job.folder), "RUN") for word in training_arguments(job, CPU)]


def test_arguments_have_kind_precision_and_device_and_keep_all_sentences(tmp_path: Path) -> None:
    mha = arguments(tmp_path, "mha")
    pairs = zip(mha, arguments(tmp_path, "mhe_mul"), strict=True)
    assert [pair for pair in pairs if pair[0] != pair[1]] == [("mha", "mhe_mul")]
    assert mha[0] == "/data set/bin"
    assert mha[mha.index("--required-batch-size-multiple") + 1] == "1"
    assert 1 <= int(mha[mha.index("--log-interval") + 1]) <= 10 // 3
    assert ("--bf16" in mha, "--update-epoch-batch-itr" in mha) == (False, True)
    assert {"--bf16", "--cpu", "adam_fused"} <= set(arguments(tmp_path, "sha", bf16=True))


class FakeChild:
    """A stand-in for fairseq-train, which writes a checkpoint of ``updates`` updates, or fails."""

    updates = TRAINING.updates
    logged = line("train_inner", loss="3.0", wps="50", num_updates="40")
    children: list[FakeChild] = []  # noqa: RUF012 - cleared by the fixture
    failing: int | None = None  # rank of the process that fails
    together = False  # whether the others run on

    def __init__(self, module: str, arguments: list[str], log: Path, *_: object) -> None:
        self.rank, self.stopped, self.job = len(self.children), False, log.parent.name
        self.children.append(self)
        folder = Path(arguments[arguments.index("--save-dir") + 1])
        folder.mkdir(exist_ok=True)
        if self.updates:
            save_weights(folder / "checkpoint_last.pt", {"w": torch.ones(1)}, self.updates)
        where = f"{START} 0, on the CPU\n" * 2 + f"{START} 9, on a GPU\n"
        log.write_text(f"{where}{self.logged}\n")

    def running(self) -> bool:
        return self.together and self.failing != self.rank

    def new_lines(self) -> list[str]:
        return ["2026-11-21 03:58:37 | WARNING | fairseq.trainer | look out"] * 2

    def check(self, what: str) -> None:
        if self.rank == self.failing:
            raise UserError(f"{what} failed in process {self.rank}")

    def stop(self) -> None:
        self.stopped = True


@pytest.fixture
def fake(monkeypatch: Patch) -> type[FakeChild]:
    monkeypatch.setattr(training, "Child", FakeChild)
    monkeypatch.setattr(FakeChild, "children", [])
    return FakeChild


def train(*jobs: Job, device: Device = CPU) -> tuple[str, dict[str, str]]:
    return train_jobs(*jobs, device=device)


def a_job(tmp_path: Path, **changes: Any) -> Job:
    return open_run(tmp_path / "r", settings(**changes), INPUT_PATHS)


@pytest.mark.parametrize("failing", [0, 1])
def test_a_failed_process_stops_the_others_of_its_model(
    tmp_path: Path, fake: type[FakeChild], monkeypatch: Patch, failing: int
) -> None:
    """The other process would wait for it forever."""
    monkeypatch.setattr(fake, "failing", failing)
    monkeypatch.setattr(fake, "together", True)
    job = a_job(tmp_path, update_freq=[2])
    _, failures = train(job, device=Device(False, 1, 1, workers=2))
    assert f"failed in process {failing}" in failures["r"]
    assert [child.stopped for child in fake.children] == [True, True]
    assert not job.metrics.exists()


@pytest.mark.parametrize("state", [{"logged": ""}, {"updates": 0, "logged": ""}])
def test_a_failed_model_does_not_end_its_neighbours(
    tmp_path: Path, fake: type[FakeChild], monkeypatch: Patch, state: dict[str, Any]
) -> None:
    """The next job takes the slot. If nothing is trained, another recipe can use the folder."""
    monkeypatch.setattr(fake, "failing", 0)
    kinds = ("mha", "sha", "mqa")
    jobs = [open_run(tmp_path / kind, settings(kind), INPUT_PATHS) for kind in kinds]
    first, *others = jobs

    class Failing(fake):  # type: ignore[misc, valid-type]
        def __init__(self, *args: Any) -> None:
            for name, value in state.items():
                setattr(self, name, value if not self.children else getattr(FakeChild, name))
            super().__init__(*args)

    monkeypatch.setattr(training, "Child", Failing)
    _, failures = train(*jobs)
    assert list(failures) == ["mha"]
    assert "failed in process 0" in failures["mha"]
    assert [job.metrics.exists() for job in jobs] == [False, True, True]
    assert (first.folder / "config.json").exists() == (len(state) < 2)
    _, failures = train(*others)
    assert not failures


def test_a_finished_training_is_not_repeated(tmp_path: Path, fake: type[FakeChild]) -> None:
    job = a_job(tmp_path)
    assert train(job)[0].count("warning: look out") == 1
    assert "look out" not in train(job)[0]
    metrics = read_json(job.metrics)
    assert metrics["tokens_per_second"] == 50.0
    assert metrics["measured"] == "on the CPU, then on a GPU"
    job.metrics.unlink()  # as if the job was killed after its last update
    train(job)
    assert read_json(job.metrics) == metrics
    assert len(fake.children) == 1


def test_a_training_that_ends_early_is_an_error(
    tmp_path: Path, fake: type[FakeChild], monkeypatch: Patch
) -> None:
    job = a_job(tmp_path)
    monkeypatch.setattr(fake, "updates", 39)
    _, failures = train(job)
    assert "ended after 39 of 40 updates" in failures["r"]
    assert not job.metrics.exists()
