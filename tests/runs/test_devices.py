"""Devices are chosen by what is there, refused where they are not, and several give the curve of
one.
"""

from __future__ import annotations

import argparse
import io
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from rich.console import Console

from fairseq_mhe.checkpoints.checkpoint import updates_made
from fairseq_mhe.common.checkpoint_files import read_checkpoint
from fairseq_mhe.common.cpu import with_huge_pages
from fairseq_mhe.common.errors import UserError
from fairseq_mhe.common.files import read_json
from fairseq_mhe.common.progress import Board
from fairseq_mhe.prepare.data_folder import open_data
from fairseq_mhe.runs import devices, translation
from fairseq_mhe.runs.devices import Device, asked_for
from fairseq_mhe.runs.job import Job
from fairseq_mhe.runs.recipes import recipe
from fairseq_mhe.runs.resuming import LAST
from fairseq_mhe.runs.train import train as train_all

ONE, TWO = Device(False, 1, 1), Device(False, 1, 1, workers=2)


def ask(*words: str, models: int = 1) -> Device:
    parser = argparse.ArgumentParser()
    devices.add_arguments(parser)
    return asked_for(parser.parse_args(words), models)


@pytest.fixture
def four_gpus(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 4)
    monkeypatch.setattr(devices, "cores", lambda: 16)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)


@pytest.fixture(autouse=True)
def no_number_of_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    """The machine's cores decide."""
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)


@pytest.fixture
def no_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 0)
    monkeypatch.setattr(devices, "cores", lambda: 4)


@pytest.mark.usefixtures("no_gpu")
@pytest.mark.parametrize(
    ("models", "cores", "expected"),
    [(2, 2, (2, 1)), (2, 8, (2, 4)), (1, 2, (1, 2)), (9, 4, (4, 1)), (2, 64, (2, 8))],
)
def test_models_train_side_by_side_on_the_cores(
    monkeypatch: pytest.MonkeyPatch, models: int, cores: int, expected: tuple[int, int]
) -> None:
    monkeypatch.setattr(devices, "cores", lambda: cores)
    assert ask(models=models) == Device(False, *expected)


@pytest.mark.parametrize(
    ("gpu", "flags", "expected"),
    [
        (False, "fpu avx512f avx512_bf16", "bf16"),
        (False, "amx_tile amx_bf16", "bf16"),
        (False, "avx512f avx512_vnni", "float32"),
        (True, "bf16", "bf16"),
        (True, "", "fp16"),
    ],
)
def test_auto_is_the_precision_that_is_fast_here(
    monkeypatch: pytest.MonkeyPatch, gpu: bool, flags: str, expected: str
) -> None:
    monkeypatch.setattr(torch.cuda, "device_count", lambda: int(gpu))
    monkeypatch.setattr(
        torch.cuda, "is_bf16_supported", lambda including_emulation: flags == "bf16"
    )
    monkeypatch.setattr("fairseq_mhe.common.cpu.cpu_flags", flags.split)
    args = argparse.Namespace(cpu=False, processes=None, precision="auto")
    assert devices.precision(args) == expected
    args.precision = "float32"
    assert devices.precision(args) == "float32"


@pytest.mark.usefixtures("no_gpu")
def test_without_a_gpu() -> None:
    assert ask("--processes", "2") == Device(False, 1, 2, workers=2)
    assert ask("--processes", "2", "--cpu").flags() == ["--cpu"]
    with pytest.raises(UserError, match="leave one of them out"):
        ask("--gpus", "1", "--cpu")


@pytest.mark.usefixtures("no_gpu")
def test_the_users_number_of_threads_is_obeyed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", "3")
    assert ask(models=2) == Device(False, 2, 3)
    assert ask("--processes", "2").threads == 3
    with pytest.raises(UserError, match=r"--gpus 2 was asked for, but torch sees 0 here"):
        ask("--gpus", "2")


@pytest.mark.usefixtures("four_gpus")
def test_every_gpu_gets_a_model_of_its_own() -> None:
    device = ask(models=7)
    assert (device.slots, device.workers) == (4, 1)
    assert device.flags() == []
    assert [device.environment(slot) for slot in (0, 3)] == [
        {"CUDA_VISIBLE_DEVICES": "0"},
        {"CUDA_VISIBLE_DEVICES": "3"},
    ]
    assert ask(models=1).environment(0) == {}
    assert ask(models=2).slots == 2
    on_cpu = ask("--cpu", models=1)
    assert on_cpu == Device(False, 1, 8)
    assert on_cpu.environment(0) == with_huge_pages()


@pytest.mark.usefixtures("four_gpus")
def test_several_gpus_a_model_and_the_users_own_choice_of_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "GPU-a,GPU-b,GPU-c,GPU-d")
    device = ask("--gpus", "2", models=7)
    assert (device.slots, device.workers) == (2, 2)
    assert device.environment(1) == {"CUDA_VISIBLE_DEVICES": "GPU-c,GPU-d"}
    words = device.rank_flags(rank=1, port=1234)
    assert words[words.index("--distributed-backend") :] == [
        "--distributed-backend",
        "nccl",
        "--device-id",
        "1",
        "--load-checkpoint-on-all-dp-ranks",
    ]
    assert "tcp://127.0.0.1:1234" in words


def train(data: Path, folder: Path, device: Device, start: Path | None = None) -> Job:
    """Six updates of two mini-batches, without dropout, whose masks would depend on the process."""
    tiny = recipe("tiny")
    training = tiny.training.shortened(6).batched(512, 256).changed(dropout=0.0)
    training = training.changed(save_interval_updates=3, validate_interval_updates=3)
    wanted = replace(tiny, training=training)
    (run,) = translation.plan_jobs(wanted, ["mhe_mul"], [1], open_data(data), folder)
    if start is not None:
        run.checkpoints.mkdir(parents=True)
        shutil.copy(start, run.checkpoints)
    with Board("updates", console=Console(file=io.StringIO())) as board:
        train_all([run], device, board)
    return run


@pytest.fixture(scope="module")
def alone(miniature: Path, tmp_path_factory: pytest.TempPathFactory) -> Job:
    return train(miniature, tmp_path_factory.mktemp("alone"), ONE)


def weights(run: Job) -> dict[str, torch.Tensor]:
    state = read_checkpoint(run.checkpoints / LAST)
    assert updates_made(state) == 6
    return state["model"]


def assert_same_training(one: Job, other: Job) -> None:
    """Losses and weights agree to float tolerance."""
    (curve, others) = (
        dict(map(tuple, read_json(run.metrics)["train"])) for run in (one, other)
    )
    assert set(others) == set(range(1, 7)) <= set(curve)
    assert [others[update] for update in others] == pytest.approx(
        [curve[update] for update in others], abs=2e-3
    )
    expected, found = weights(one), weights(other)
    apart = max((expected[name] - found[name]).abs().mean().item() for name in expected)
    moved = max(value.abs().mean().item() for value in expected.values())
    assert apart < 1e-3 * moved


def test_two_processes_give_the_curve_of_one(
    miniature: Path, alone: Job, tmp_path: Path
) -> None:
    together = train(miniature, tmp_path, TWO)
    assert_same_training(alone, together)
    assert "2 processes a model" in read_json(together.metrics)["measured"]
    state = read_checkpoint(together.checkpoints / LAST)
    assert state["cfg"]["distributed_training"]["distributed_world_size"] == 2


def test_two_processes_do_not_resume_what_one_began(
    miniature: Path, alone: Job, tmp_path: Path
) -> None:
    (middle,) = alone.checkpoints.glob("checkpoint_*_3.pt")
    with pytest.raises(UserError, match="was trained on 1 devices, not 2: resume on as many"):
        train(miniature, tmp_path, TWO, start=middle)
