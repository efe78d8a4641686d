"""Read fairseq checkpoints without ever running code that they hold, and say in one line why one is refused."""

from __future__ import annotations

import argparse
import errno
import pickle
import zipfile
from pathlib import Path
from typing import Any

import torch

from fairseq_mhe.common.errors import UserError
from fairseq_mhe.fairseq_fixes import checkpoint_problem

#: The key under which our commands write how a checkpoint was made.
PROVENANCE = "fairseq_mhe"


def load_checkpoint(path: Path) -> dict[str, Any]:
    """A fairseq checkpoint as the dictionary that fairseq saved, on the CPU, its tensors read when they are used.

    Raises:
        UserError: the file is missing, unreadable, truncated, holds pickled code, or is no fairseq
        checkpoint.
    """
    if not path.is_file():
        raise UserError(
            f"{path} does not exist: give the path of a fairseq checkpoint (a .pt file)"
        )
    try:
        # What fairseq's checkpoints hold beside tensors and plain values is allowed by
        # fairseq_fixes.py. Only the zip format, fairseq's since torch 1.6, can be mapped into
        # memory.
        state = torch.load(
            path, map_location="cpu", weights_only=True, mmap=zipfile.is_zipfile(path)
        )
    except OSError as error:
        if (
            error.errno == errno.EINVAL
        ):  # torch looks for an older format's end, before the file's beginning
            raise UserError(checkpoint_problem(path, foreign=False)) from None
        raise UserError(f"cannot read {path}: {error.strerror or error}") from error
    except pickle.UnpicklingError as error:
        raise UserError(checkpoint_problem(path, foreign="GLOBAL" in str(error))) from None
    except (EOFError, RuntimeError, KeyError, ValueError):
        raise UserError(checkpoint_problem(path, foreign=False)) from None
    if not isinstance(state, dict) or not isinstance(state.get("model"), dict):
        raise UserError(checkpoint_problem(path, foreign=False))
    return state


def model_options(state: dict[str, Any]) -> dict[str, Any]:
    """The model's options in a checkpoint, whether it was made by fairseq-train, fairseq-hydra-train or long ago."""
    options = (state.get("cfg") or {}).get("model") or state.get("args") or {}
    return vars(options) if isinstance(options, argparse.Namespace) else dict(options)


def updates_made(state: dict[str, Any]) -> int:
    """How many updates the checkpoint's model had seen."""
    history = state.get("optimizer_history") or [{}]
    return int(history[-1].get("num_updates", 0))


def provenance(state: dict[str, Any]) -> dict[str, Any]:
    """What one of our commands wrote about how a checkpoint was made; empty where none did."""
    found = state.get(PROVENANCE)
    return found if isinstance(found, dict) else {}
