"""Choose where to train: models side by side, processes for each model, and the precision."""

import os
from dataclasses import dataclass
from typing import Any

import torch

from fairseq_mhe.common.arguments import integer, option
from fairseq_mhe.common.cpu import has_fast_bf16
from fairseq_mhe.common.errors import UserError
from fairseq_mhe.common.system import cores, omp_threads

#: More threads than these do not make a training step of a small model faster.
_MAX_THREADS = 8


@dataclass(frozen=True, kw_only=True)
class DeviceOptions:
    """Where to train and in which precision; the fields are command-line options."""

    gpus: int | None = integer(
        None,
        "GPUs for each model (default: 1, so that each GPU trains a different model)",
    )
    processes: int | None = integer(
        None, "train each model by N processes on the CPU (gloo)"
    )
    cpu: bool = option(False, "do not use a GPU")
    precision: str = option(
        "auto",
        "precision of training. auto keeps the precision of a run folder. A new run takes bf16 on "
        "GPUs and on CPUs with AVX512-BF16 or AMX, fp16 on older GPUs, float32 on other CPUs",
        choices=("auto", "float32", "bf16", "fp16"),
    )

    @property
    def workers(self) -> int:
        """The processes that train a model together, each on its GPU or on the CPU."""
        return self.gpus or self.processes or 1


@dataclass(frozen=True)
class Device:
    """Where to train: ``slots`` models side by side, each in ``workers`` processes."""

    gpu: bool
    slots: int
    threads: int  # of each process
    workers: int = 1

    def describe(self, precision: str) -> str:
        """Return the device and the precision in words, for the screen and for metrics.json."""
        sizes = f"models at a time: {self.slots}, processes a model: {self.workers}"
        where = "a GPU" if self.gpu else "the CPU"
        return f"on {where}, {precision} ({sizes}, threads a process: {self.threads})"

    def environment(self, slot: int) -> dict[str, str]:
        """Return a slot's environment variables, which name its GPUs."""
        if not self.gpu:
            return {}
        visible = list(map(str, range(torch.cuda.device_count())))
        if named := os.environ.get("CUDA_VISIBLE_DEVICES"):
            visible = named.split(",")
        first = slot * self.workers
        own = visible[first : first + self.workers]
        return {"CUDA_VISIBLE_DEVICES": ",".join(own)}

    def rank_options(self, rank: int, port: int) -> dict[str, Any]:
        """Return fairseq's options for one of the ``workers``, which connect at a local ``port``.

        `train` starts each process, as torchrun does: fairseq's own spawning fails without a GPU.
        """
        if self.workers == 1:
            # By default fairseq uses all GPUs, which multiplies the batch.
            return {"distributed_world_size": 1}
        options = {
            "distributed_world_size": self.workers,
            "distributed_rank": rank,
            "distributed_init_method": f"tcp://127.0.0.1:{port}",
            "distributed_no_spawn": True,
            # Otherwise the first process sends the checkpoint as a pickle, which torch refuses.
            "load_checkpoint_on_all_dp_ranks": True,
        }
        if self.gpu:
            return {**options, "distributed_backend": "nccl", "device_id": rank}
        return {**options, "distributed_backend": "gloo", "ddp_backend": "legacy_ddp"}


def choose_device(options: DeviceOptions, models: int) -> Device:
    """Choose the devices for ``models`` models; raises UserError if the devices are missing.

    Each GPU trains one model; a CPU trains a model on each core, which gives the most tokens/s.
    """
    if options.gpus and (options.cpu or options.processes):
        other = "--cpu" if options.cpu else "--processes"
        raise UserError(
            f"--gpus asks for GPUs and {other} for none: leave one of them out"
        )
    workers = options.workers
    if options.processes:
        return Device(False, 1, _threads(workers), workers)
    available = torch.cuda.device_count()
    if options.gpus and options.gpus > available:
        raise UserError(
            f"--gpus {options.gpus} was asked for, but torch sees {available} here: ask for fewer, "
            "look at nvidia-smi and CUDA_VISIBLE_DEVICES, or train on the CPU with --cpu"
        )
    gpu = on_gpu(options)
    slots = min(models, available // workers if gpu else cores())
    return Device(gpu, slots, _threads(slots * workers), workers)


def on_gpu(options: DeviceOptions) -> bool:
    """Return whether there is a GPU and the options allow it."""
    return not options.cpu and not options.processes and torch.cuda.device_count() > 0


def precision(options: DeviceOptions) -> str:
    """Return the precision that the options choose; "auto" is the fastest on this machine."""
    if options.precision != "auto":
        return options.precision
    if on_gpu(options):
        has_bf16 = torch.cuda.is_bf16_supported(including_emulation=False)
        return "bf16" if has_bf16 else "fp16"
    return "bf16" if has_fast_bf16() else "float32"


def _threads(processes: int) -> int:
    """Return the threads of each of so many processes: OMP_NUM_THREADS, or a share of the cores."""
    return omp_threads(min(_MAX_THREADS, cores() // processes))


def single(options: DeviceOptions) -> Device:
    """Return the device of a single process, which has the machine to itself."""
    return Device(on_gpu(options), 1, _threads(1))
