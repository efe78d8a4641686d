"""Checkpoints in plain values, written whole; what our commands note in them."""

import argparse
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from fairseq_mhe.common.files import atomic_path

#: The key under which our commands write how a checkpoint was made.
PROVENANCE = "fairseq_mhe"
#: The key under which an averaged checkpoint names its sources.
SOURCES = "averaged_from"


def updates_made(state: dict[str, Any]) -> int:
    """How many updates the checkpoint's model had seen."""
    history = state.get("optimizer_history") or [{}]
    return int(history[-1].get("num_updates", 0))


def provenance(state: dict[str, Any]) -> dict[str, Any]:
    """What one of our commands wrote about how a checkpoint was made; empty where none did."""
    found: dict[str, Any] = plain(state.get(PROVENANCE) or {})
    return found


def save_checkpoint(state: Mapping[str, Any], path: Path) -> None:
    """Write a checkpoint, whole or not at all; of the same content the same bytes.

    Raises:
        UserError: the file cannot be written.
    """
    with atomic_path(path) as temporary:
        try:
            # Given a path, torch would write its name, which is another in each process.
            with temporary.open("wb") as stream:
                torch.save(state, stream)
        except RuntimeError as error:
            if isinstance(
                error.__context__, OSError
            ):  # a full disk, which torch's writer hides
                raise error.__context__ from None
            raise


def plain(value: Any) -> Any:
    """A copy in dictionaries, lists, numbers, strings and None only, so that it loads anywhere."""
    if isinstance(value, argparse.Namespace):
        value = vars(value)
    if isinstance(value, Mapping):
        return {str(key): plain(inner) for key, inner in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(inner) for inner in value]
    return value if isinstance(value, (bool, int, float, str, type(None))) else str(value)
