"""The one way to read a checkpoint's file: whole, of fairseq's shape, or refused in one line."""

import argparse
import errno
import functools
import pickle
import warnings
import zipfile
from pathlib import Path
from typing import Any

import torch

from fairseq_mhe.common.errors import UserError
from fairseq_mhe.common.files import check_input


def read_checkpoint(path: Path) -> dict[str, Any]:
    """A checkpoint as fairseq saved it, on the CPU; its tensors are read when they are used.

    UserError where the file is missing or damaged, holds pickled code, which is never run, or is
    no fairseq checkpoint.
    """
    check_input(path, "give the path of a fairseq checkpoint (a .pt file)")
    try:
        with warnings.catch_warnings(action="ignore"):
            # Only the zip format, fairseq's since torch 1.6, can be mapped into memory. What
            # fairseq's checkpoints hold beside tensors and plain values: see fairseq_fixes.py.
            mapped = zipfile.is_zipfile(path)
            if mapped:
                status = path.stat()
                _check_crc(path, status.st_size, status.st_mtime_ns)
            state = torch.load(path, map_location="cpu", weights_only=True, mmap=mapped)
        model_options(state)  # which are named values
        for weight in state["model"].values():
            # A lone integer is a count, of batches for one.
            if weight.numel() != 1 and not torch.is_floating_point(weight):
                raise TypeError(f"no weight: {weight!r:.100}")
    except UserError:
        raise
    except Exception as error:  # there is no end to what torch raises for foreign bytes
        raise UserError(_problem(path, error)) from None
    return state


@functools.lru_cache(maxsize=64)
def _check_crc(path: Path, size: int, changed: int) -> None:
    """As torch does not, once a process while the file stays the same: 0.1 s for 250 MB."""
    with zipfile.ZipFile(path) as archive:
        part = archive.testzip()
    if part:
        problem = f"its part {part} has another checksum than was written"
        raise UserError(f"{path} is damaged: {problem}; use another copy")


def _problem(path: Path, error: Exception) -> str:
    if isinstance(error, pickle.UnpicklingError) and "GLOBAL" in str(error):
        return (
            f"{path} holds pickled objects other than tensors and plain values; loading them could "
            "run foreign code, so it is refused: use a checkpoint from a source you trust that was "
            "saved with plain types"
        )
    if isinstance(error, MemoryError) or "allocate memory" in str(error):
        return f"there is not the memory that {path} asks for: make room, or use another checkpoint"
    # torch looks for an older format's end before the file's beginning, which is EINVAL.
    if isinstance(error, OSError) and error.errno != errno.EINVAL:
        return f"cannot read {path}: {error.strerror or error}"
    return f"{path} is truncated or no fairseq checkpoint: use another one"


def model_options(state: dict[str, Any]) -> dict[str, Any]:
    """The model's options, the old form's where a checkpoint has both, as fairseq has it."""
    options = state.get("args") or (state.get("cfg") or {}).get("model") or {}
    return vars(options) if isinstance(options, argparse.Namespace) else dict(options)
