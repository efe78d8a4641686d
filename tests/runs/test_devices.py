"""Devices are chosen from the GPUs and cores of the machine; two processes train like one."""

import argparse
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from fairseq_mhe.checkpoints.checkpoint import updates_made
from fairseq_mhe.common.arguments import add_options, from_options
from fairseq_mhe.common.checkpoint_files import read_checkpoint
from fairseq_mhe.common.errors import UserError
from fairseq_mhe.common.files import read_json
from fairseq_mhe.models.options import PLACES
from fairseq_mhe.runs import devices
from fairseq_mhe.runs.devices import Device, DeviceOptions, choose_device
from fairseq_mhe.runs.job import Job, plan_job, settings_of
from fairseq_mhe.runs.recipes import recipe
from tests.fixtures.refusals import refuses
from tests.fixtures.runs import train_jobs

Patch = pytest.MonkeyPatch

ONE, TWO = Device(False, 1, 1), Device(False, 1, 1, workers=2)


def choose(*words: str, models: int = 1) -> Device:
    parser = argparse.ArgumentParser()
    add_options(parser, DeviceOptions)
    return choose_device(from_options(DeviceOptions, parser.parse_args(words)), models)


@pytest.fixture
def machine(monkeypatch: Patch) -> Callable[[int, int], None]:
    """Return a function that sets the numbers of GPUs and cores."""

    def has(gpus: int, cores: int) -> None:
        monkeypatch.setattr(torch.cuda, "device_count", lambda: gpus)
        monkeypatch.setattr(devices, "cores", lambda: cores)

    for name in ("OMP_NUM_THREADS", "CUDA_VISIBLE_DEVICES"):
        monkeypatch.delenv(name, raising=False)
    return has


@pytest.mark.parametrize(
    ("gpus", "cores", "models", "words", "expected"),
    [
        (0, 8, 2, "", Device(False, 2, 4)),
        (0, 4, 9, "", Device(False, 4, 1)),
        (0, 64, 2, "", Device(False, 2, 8)),
        (0, 2, 1, "--processes 4", Device(False, 1, 1, workers=4)),
        (4, 16, 1, "--cpu", Device(False, 1, 8)),
        (4, 16, 2, "", Device(True, 2, 8)),
        (2, 8, 7, "--gpus 2", Device(True, 1, 4, workers=2)),
    ],
)
def test_models_train_side_by_side_on_available_devices(
    machine: Callable[[int, int], None],
    monkeypatch: Patch,
    gpus: int,
    cores: int,
    models: int,
    words: str,
    expected: Device,
) -> None:
    machine(gpus, cores)
    assert choose(*words.split(), models=models) == expected
    for chosen, number in (("3", 3), ("0", expected.threads)):  # the user's number counts
        monkeypatch.setenv("OMP_NUM_THREADS", chosen)
        assert choose(*words.split(), models=models).threads == number


def test_missing_gpus_are_refused(machine: Callable[[int, int], None]) -> None:
    machine(0, 4)
    for words, named in (("--gpus 1 --cpu", "--cpu"), ("--gpus 2", "sees 0")):
        with refuses(named):
            choose(*words.split())


@pytest.mark.parametrize(
    ("gpu", "flags", "expected"),
    [
        (False, "fpu avx512f avx512_bf16", "bf16"),
        (False, "avx512f avx512_vnni", "float32"),
        (True, "bf16", "bf16"),
        (True, "", "fp16"),
    ],
)
def test_auto_precision_is_the_fastest_of_the_machine(
    monkeypatch: Patch, gpu: bool, flags: str, expected: str
) -> None:
    monkeypatch.setattr(torch.cuda, "device_count", lambda: int(gpu))
    monkeypatch.setattr(
        torch.cuda, "is_bf16_supported", lambda including_emulation: flags == "bf16"
    )
    monkeypatch.setattr("fairseq_mhe.common.cpu.cpu_flags", lambda: set(flags.split()))
    assert devices.precision(DeviceOptions()) == expected
    assert devices.precision(DeviceOptions(precision="float32")) == "float32"


def test_models_side_by_side_use_different_gpus(
    machine: Callable[[int, int], None], monkeypatch: Patch
) -> None:
    machine(4, 16)
    assert choose(models=7).environment(3) == {"CUDA_VISIBLE_DEVICES": "3"}
    assert choose(models=1).environment(0) == {"CUDA_VISIBLE_DEVICES": "0"}
    assert choose("--cpu").environment(0) == {}
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "GPU-a,GPU-b,GPU-c,GPU-d")
    device = choose("--gpus", "2", models=7)
    assert device.environment(1) == {"CUDA_VISIBLE_DEVICES": "GPU-c,GPU-d"}
    options = device.rank_options(rank=1, port=1234)
    assert (options["distributed_backend"], options["device_id"]) == ("nccl", 1)
    assert options["distributed_init_method"] == "tcp://127.0.0.1:1234"
    assert options["load_checkpoint_on_all_dp_ranks"]


def train(data: Path, folder: Path, device: Device, start: Path | None = None) -> Job:
    """Train six updates of two mini-batches, without dropout, whose masks depend on the process."""
    training = recipe("tiny").training.shortened(6).batched(512, 256).changed(dropout=0.0)
    training = training.changed(save_interval_updates=3, validate_interval_updates=3)
    settings = settings_of("tiny", dict.fromkeys(PLACES, "mhe_mul"), 1, training, {})
    run = plan_job(folder, settings, {"data": str(data)})
    if start is not None:
        run.checkpoints.mkdir(parents=True)
        shutil.copy(start, run.checkpoints)
    _, failures = train_jobs(run, device=device)
    for reason in failures.values():
        raise UserError(reason)
    return run


@pytest.fixture(scope="module")
def alone(miniature: Path, tmp_path_factory: pytest.TempPathFactory) -> Job:
    return train(miniature, tmp_path_factory.mktemp("alone"), ONE)


def test_two_processes_train_like_one(miniature: Path, alone: Job, tmp_path: Path) -> None:
    """Losses and weights agree up to rounding."""
    together = train(miniature, tmp_path, TWO)
    curves = [dict(map(tuple, read_json(job.metrics)["train"])) for job in (alone, together)]
    assert set(curves[1]) == set(range(1, 7)) <= set(curves[0])
    for update, loss in curves[1].items():
        assert loss == pytest.approx(curves[0][update], abs=2e-3)
    expected, actual = (read_checkpoint(job.last) for job in (alone, together))
    assert updates_made(expected) == updates_made(actual) == 6
    assert actual["cfg"]["distributed_training"]["distributed_world_size"] == 2
    weights = expected["model"]
    difference = max((w - actual["model"][name]).abs().mean() for name, w in weights.items())
    assert difference < 1e-3 * max(weight.abs().mean() for weight in weights.values())


def test_two_processes_refuse_to_resume_one(miniature: Path, alone: Job, tmp_path: Path) -> None:
    (middle,) = alone.checkpoints.glob("checkpoint_*_3.pt")
    with refuses("1 devices, not 2"):
        train(miniature, tmp_path, TWO, start=middle)
