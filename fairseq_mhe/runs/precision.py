"""In which precision a model is trained: what was asked for, or what is fast on this machine."""

import argparse

import torch

from fairseq_mhe.common.cpu import has_fast_bf16

AUTO, FLOAT32 = "auto", "float32"
PRECISIONS = (AUTO, FLOAT32, "bf16", "fp16")


def add_argument(parser: argparse.ArgumentParser) -> None:
    """The option ``--precision``."""
    told = (
        "numbers of the training; auto: bf16 where it is fast on this machine (GPUs, else fp16 "
        "there; CPUs with AVX512-BF16 or AMX), else float32"
    )
    parser.add_argument("--precision", choices=PRECISIONS, default=AUTO, help=told)


def chosen(asked: str, gpu: bool) -> str:
    """What the option of `add_argument` means: ``auto`` is what is fast on this machine."""
    return fastest(gpu) if asked == AUTO else asked


def fastest(gpu: bool) -> str:
    """bf16 on a GPU that has it, else fp16; on a CPU bf16 where its instructions make it fast."""
    if gpu:
        return "bf16" if torch.cuda.is_bf16_supported(including_emulation=False) else "fp16"
    return "bf16" if has_fast_bf16() else FLOAT32
