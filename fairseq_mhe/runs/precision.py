"""In which precision a model is trained: what is fast here, or what its neighbours began with."""

import argparse
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import torch

from fairseq_mhe.common.errors import UserError
from fairseq_mhe.common.files import read_json
from fairseq_mhe.common.system import cpu_flags
from fairseq_mhe.models.optimizer import optimizer_for
from fairseq_mhe.runs.run import Run, read_run

AUTO, FLOAT32 = "auto", "float32"
PRECISIONS = (AUTO, FLOAT32, "bf16", "fp16")
#: Instructions by which a CPU multiplies matrices of bfloat16 faster than those of float32.
_FAST_BF16 = frozenset(("avx512_bf16", "amx_bf16"))


def add_argument(parser: argparse.ArgumentParser) -> None:
    """The option ``--precision``."""
    told = (
        "numbers of the training; auto: bf16 where it is fast (GPUs, else fp16 there; CPUs with "
        "AVX512-BF16 or AMX), else float32; what --out has begun goes on as it began"
    )
    parser.add_argument("--precision", choices=PRECISIONS, default=AUTO, help=told)


def chosen(asked: str, gpu: bool, out: Path) -> str:
    """What an option of `add_argument` means for the runs of the folder ``out``.

    ``auto`` is what the first run there began with, so that a table is of one precision whatever
    machine goes on with it; where there is none, what is fast.
    """
    if asked != AUTO:
        return asked
    begun = _begun(out, "settings")
    return read_run(begun[0]).training.precision if begun else fastest(gpu)


def _begun(out: Path, with_: str) -> list[Path]:
    """The runs in ``out``: folders whose config.json has a word that only their sort of run has."""

    def has(path: Path) -> bool:
        try:
            return with_ in read_json(path)
        except UserError:  # which is told where that run itself is asked for
            return False

    return sorted(path.parent for path in out.glob("*/config.json") if has(path))


def of_language_model(asked: str, gpu: bool, folder: Path) -> tuple[dict[str, str], list[str]]:
    """What an option of `add_argument` adds to a run's settings, and fairseq's words for it.

    Settings say nothing of float32. ``auto`` is what the run in ``folder`` began with; where there
    is none, the first run beside it; else what is fast.
    """
    if asked == AUTO:
        own = [folder] if (folder / "config.json").exists() else []
        begun = [*own, *_begun(folder.parent, "recipe")]
        asked = configuration(begun[0])["precision"] if begun else fastest(gpu)
    words = ["--optimizer", optimizer_for(asked)]
    return ({}, words) if asked == FLOAT32 else ({"precision": asked}, [*words, f"--{asked}"])


def configuration(folder: Path) -> dict[str, Any]:
    """A language model's run's config.json; one that names no precision was trained in float32."""
    return {"precision": FLOAT32, **read_json(folder / "config.json")}


def fastest(gpu: bool) -> str:
    """bf16 on a GPU that has it, else fp16; on a CPU bf16 where its instructions make it fast."""
    if gpu:
        return "bf16" if torch.cuda.is_bf16_supported(including_emulation=False) else "fp16"
    return FLOAT32 if _FAST_BF16.isdisjoint(cpu_flags()) else "bf16"


def told(runs: Iterable[Run]) -> str:
    """The precision of runs in words: "bf16", or each with its runs where they differ."""
    names: dict[str, list[str]] = {}
    for run in runs:
        names.setdefault(run.training.precision, []).append(run.name)
    if len(names) < 2:
        return "".join(names)
    return "; ".join(f"{precision}: {', '.join(each)}" for precision, each in names.items())
