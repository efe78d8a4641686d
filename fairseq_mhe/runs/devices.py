"""Where to train: how many models side by side, how many processes to a model, which precision."""

import os
from argparse import ArgumentParser, Namespace
from dataclasses import dataclass
from typing import Any

import torch

from fairseq_mhe.common.arguments import positive
from fairseq_mhe.common.cpu import has_fast_bf16, with_huge_pages
from fairseq_mhe.common.errors import UserError
from fairseq_mhe.common.system import cores

#: More threads than this do not make a step of a small model faster.
_MOST_THREADS = 8


@dataclass(frozen=True)
class Device:
    """Where to train: ``slots`` models at a time by ``workers`` processes of ``threads`` each."""

    gpu: bool
    slots: int
    threads: int
    workers: int = 1

    def describe(self, precision: str) -> str:
        """The device and the precision in words, for people and for provenance."""
        sizes = f"models at a time: {self.slots}, processes a model: {self.workers}"
        where = "a GPU" if self.gpu else "the CPU"
        return f"on {where}, {precision} ({sizes}, threads a process: {self.threads})"

    def environment(self, slot: int) -> dict[str, str]:
        """Environment variables of a slot's processes: which of several GPUs are theirs."""
        if not self.gpu:
            return with_huge_pages()
        if self.slots * self.workers == 1:
            return {}
        visible = list(map(str, range(torch.cuda.device_count())))
        if named := os.environ.get("CUDA_VISIBLE_DEVICES"):
            visible = named.split(",")
        own = visible[slot * self.workers : (slot + 1) * self.workers]
        return {"CUDA_VISIBLE_DEVICES": ",".join(own)}

    def rank_options(self, rank: int, port: int) -> dict[str, Any]:
        """fairseq's options for one of the ``workers``, which meet at a ``port`` of this machine.

        We start each, as torchrun does: fairseq's own spawning counts GPUs and fails without one.
        """
        if self.workers == 1:
            # fairseq would use every GPU there is, and multiply the batch.
            return {"distributed_world_size": 1}
        options = {
            "distributed_world_size": self.workers,
            "distributed_rank": rank,
            "distributed_init_method": f"tcp://127.0.0.1:{port}",
            "distributed_no_spawn": True,
            # Otherwise the first process sends the others what it read, as a pickle that
            # torch >= 2.6 refuses.
            "load_checkpoint_on_all_dp_ranks": True,
        }
        if self.gpu:
            return {**options, "distributed_backend": "nccl", "device_id": rank}
        return {**options, "distributed_backend": "gloo", "ddp_backend": "legacy_ddp"}


def add_arguments(parser: ArgumentParser) -> None:
    """The options that say where to train, and in which precision."""
    add = parser.add_mutually_exclusive_group().add_argument
    help_ = "GPUs for each model (default: 1, with a model on each GPU at a time)"
    add("--gpus", type=positive, metavar="N", help=help_)
    help_ = "train each model by N processes on the CPU (gloo)"
    add("--processes", type=positive, metavar="N", help=help_)
    parser.add_argument("--cpu", action="store_true", help="do not use a GPU")
    help_ = "precision of training; auto: bf16 on GPUs (else fp16) and on CPUs with "
    help_ += "AVX512-BF16 or AMX, else float32"
    choices = ("auto", "float32", "bf16", "fp16")
    parser.add_argument("--precision", choices=choices, default="auto", help=help_)


def choose_device(args: Namespace, models: int) -> Device:
    """The devices for ``models`` models, or UserError where they are not there.

    On GPUs one model on each; on a CPU as many side by side as there are cores. (Stock fairseq, 2
    cores, two models side by side and not one after the other: 1.55 times the tokens/s at d_m 128
    and 2+2 layers, 1.15 at 256 and 4+4.)
    """
    if args.gpus is not None and args.cpu:
        raise UserError("--gpus asks for GPUs and --cpu for none: leave one of them out")
    if args.processes is not None:
        return Device(False, 1, _threads(args.processes), workers=args.processes)
    available = torch.cuda.device_count()
    if args.gpus is not None and args.gpus > available:
        raise UserError(
            f"--gpus {args.gpus} was asked for, but torch sees {available} here: ask for fewer, "
            "look at nvidia-smi and CUDA_VISIBLE_DEVICES, or train on the CPU with --cpu"
        )
    gpu = on_gpu(args)
    workers = args.gpus or 1
    slots = max(1, min(models, available // workers if gpu else cores()))
    return Device(gpu, slots, _threads(slots * workers), workers)


def on_gpu(args: Namespace) -> bool:
    """Whether the options let a GPU be used, and there is one."""
    many = getattr(args, "processes", None)  # evaluate has no such option
    return not args.cpu and many is None and torch.cuda.device_count() > 0


def precision(args: Namespace) -> str:
    """The precision that the options ask for; "auto" is what is fast on this machine."""
    if args.precision != "auto":
        return str(args.precision)
    if on_gpu(args):
        return (
            "bf16" if torch.cuda.is_bf16_supported(including_emulation=False) else "fp16"
        )
    return "bf16" if has_fast_bf16() else "float32"


def _threads(processes: int) -> int:
    """Threads of each of so many processes; the user's OMP_NUM_THREADS is obeyed."""
    given = os.environ.get("OMP_NUM_THREADS", "")
    if given.isdecimal() and int(given):
        return int(given)
    return max(1, min(_MOST_THREADS, cores() // processes))


def single(args: Namespace) -> Device:
    """One process that has the machine to itself."""
    return Device(on_gpu(args), 1, _threads(1))
