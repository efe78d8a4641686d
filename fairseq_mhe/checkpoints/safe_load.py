"""fairseq's checkpoints as plain data: read without running code in them, written whole."""

from __future__ import annotations

import argparse
import errno
import pickle
import stat
import warnings
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from fairseq_mhe.common.errors import UserError
from fairseq_mhe.common.files import atomic_path, kind_of_file
from fairseq_mhe.fairseq_fixes import checkpoint_problem

#: The key under which our commands write how a checkpoint was made.
PROVENANCE = "fairseq_mhe"
#: The key under which an averaged checkpoint names its sources.
SOURCES = "averaged_from"


def load_checkpoint(path: Path) -> dict[str, Any]:
    """A checkpoint as fairseq saved it, on the CPU; its tensors are read when they are used.

    Raises:
        UserError: the file is missing, unreadable, truncated, holds pickled code, or is no fairseq
            checkpoint.
    """
    _check_file(path)
    try:
        # What fairseq's checkpoints hold beside tensors and plain values is allowed by
        # fairseq_fixes.py. Only the zip format, fairseq's since torch 1.6, can be mapped into
        # memory.
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of a foreign pickle; what we say of it is enough
            state = torch.load(
                path, map_location="cpu", weights_only=True, mmap=zipfile.is_zipfile(path)
            )
    except OSError as error:
        # torch looks for an older format's end, before the file's beginning.
        if error.errno == errno.EINVAL:
            raise UserError(checkpoint_problem(path, foreign=False)) from None
        raise UserError(f"cannot read {path}: {error.strerror or error}") from error
    except pickle.UnpicklingError as error:
        raise UserError(checkpoint_problem(path, foreign="GLOBAL" in str(error))) from None
    except (EOFError, RuntimeError, KeyError, ValueError):
        raise UserError(checkpoint_problem(path, foreign=False)) from None
    if not isinstance(state, dict) or not isinstance(state.get("model"), dict):
        raise UserError(checkpoint_problem(path, foreign=False))
    return state


def _check_file(path: Path) -> None:
    """See that a checkpoint can be read from ``path``: a device might never end."""
    wanted = "give the path of a fairseq checkpoint (a .pt file)"
    try:
        mode = path.stat().st_mode
    except (FileNotFoundError, NotADirectoryError):
        raise UserError(f"{path} does not exist: {wanted}") from None
    except OSError as error:
        raise UserError(f"cannot read {path}: {error.strerror or error}") from error
    if not stat.S_ISREG(mode):
        raise UserError(f"{path} is {kind_of_file(mode)}: {wanted}")


def model_options(state: dict[str, Any]) -> dict[str, Any]:
    """The model's options, be the checkpoint by fairseq-train, fairseq-hydra-train or old."""
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


def save_checkpoint(state: Mapping[str, Any], path: Path) -> None:
    """Write a checkpoint, whole or not at all.

    Raises:
        UserError: the file cannot be written.
    """
    with atomic_path(path) as temporary:
        try:
            torch.save(state, temporary)
        except RuntimeError as error:  # torch's writer hides the OSError of a full disk
            raise UserError(f"cannot write {path}: {error}") from None


def plain(value: Any) -> Any:
    """A copy in dictionaries, lists, numbers, strings and None only, so that it loads anywhere."""
    if isinstance(value, argparse.Namespace):
        value = vars(value)
    if isinstance(value, Mapping):
        return {str(key): plain(inner) for key, inner in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(inner) for inner in value]
    return value if isinstance(value, (bool, int, float, str, type(None))) else str(value)
