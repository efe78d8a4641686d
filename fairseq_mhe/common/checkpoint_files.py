"""Reads a checkpoint's file and checks it; all our code reads checkpoints through it."""

import argparse
import pickle
import warnings
import zipfile
from errno import EINVAL
from pathlib import Path
from typing import Any

import torch

from fairseq_mhe.common.errors import UserError
from fairseq_mhe.common.files import check_input
from fairseq_mhe.common.plain_pickle import permit

permit()  # here, because all our code and fairseq's commands load this module first


def read_checkpoint(path: Path) -> dict[str, Any]:
    """Return a checkpoint as fairseq saved it, on the CPU; its tensors are read when used.

    Raises UserError if it is missing, damaged or not fairseq's, or holds code, which is never run.
    """
    check_input(path, "give the path of a fairseq checkpoint (one .pt file, no shards)")
    try:
        with warnings.catch_warnings(action="ignore"):
            # Only the zip format, torch's default since 1.6, can be mapped into memory.
            zipped = zipfile.is_zipfile(path)
            if zipped:
                _check_crc(path)
            state = torch.load(path, "cpu", weights_only=True, mmap=zipped)
        model_options(state)  # fails if there is no dictionary of options
        for weight in state["model"].values():
            # A single integer may be a counter, such as the batches that a layer has seen.
            if weight.numel() != 1 and not torch.is_floating_point(weight):
                raise TypeError(f"not a weight: {weight!r:.100}")
    except UserError:
        raise
    except Exception as error:  # torch raises many types of exceptions for damaged files
        raise UserError(_problem(path, error)) from None
    return state


def _check_crc(path: Path) -> None:
    """Raise UserError if a checksum is wrong, which torch ignores; takes 0.1 s for 250 MB."""
    with zipfile.ZipFile(path) as archive:
        member = archive.testzip()
    if member:
        problem = f"the checksum of its part {member} is wrong"
        raise UserError(f"{path} is damaged: {problem}; use another copy")


def _problem(path: Path, error: Exception) -> str:
    """Return what an error of torch.load says about the file, and what to do."""
    if isinstance(error, pickle.UnpicklingError) and "GLOBAL" in str(error):
        return (
            f"{path} holds pickled objects other than tensors and plain values; loading them could "
            "run foreign code, so it is refused: use a checkpoint from a source you trust that was "
            "saved with plain types"
        )
    if isinstance(error, MemoryError) or "allocate memory" in str(error):
        return f"not enough memory to load {path}: free some memory, or use another checkpoint"
    if isinstance(error, OSError) and error.errno != EINVAL:  # torch's, of a short file
        return f"cannot read {path}: {error.strerror or error}"
    return f"{path} is truncated or no fairseq checkpoint: use another one"


def model_options(state: dict[str, Any]) -> dict[str, Any]:
    """Return the model's options, from the old form (``args``) if it is there, as fairseq does."""
    options = state.get("args") or (state.get("cfg") or {}).get("model") or {}
    return vars(options) if isinstance(options, argparse.Namespace) else dict(options)
