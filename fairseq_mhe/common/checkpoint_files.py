"""The one way to read a checkpoint's file: whole, of fairseq's shape, or refused in one line."""

import argparse
import errno
import pickle
import warnings
import zipfile
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from fairseq_mhe.common.errors import UserError
from fairseq_mhe.common.files import check_input

#: What a file of torch's format before 1.6 begins with.
_LEGACY = pickle.dumps(torch.serialization.MAGIC_NUMBER, protocol=2)
#: fairseq's own checkpoints stay far below: levels of nesting, values, bits of a number.
_DEEPEST, _MOST_VALUES, _MOST_BITS = 50, 500_000, 4096


def read_checkpoint(path: Path) -> dict[str, Any]:
    """A checkpoint as fairseq saved it, on the CPU; its tensors are read when they are used.

    No code in it is run.

    Raises:
        UserError: the file is missing, unreadable, truncated, holds pickled code, or is no fairseq
            checkpoint.
    """
    check_input(path, "give the path of a fairseq checkpoint (a .pt file)")
    state = _load(path)
    _check_structure(path, state)
    if not isinstance(state, dict) or not isinstance(state.get("model"), dict):
        raise UserError(_problem(path))
    _check_parts(path, state)
    _check_values(path, state)
    return state


def _load(path: Path) -> Any:
    try:
        with warnings.catch_warnings(action="ignore"):
            # Only the zip format, fairseq's since torch 1.6, can be mapped into memory. What
            # fairseq's checkpoints hold beside tensors and plain values: see fairseq_fixes.py.
            mapped = zipfile.is_zipfile(path)
            return torch.load(path, map_location="cpu", weights_only=True, mmap=mapped)
    except Exception as error:  # there is no end to what torch raises for foreign bytes
        raise why_unreadable(path, error) from None


def why_unreadable(path: Path, error: Exception) -> UserError:
    """What to tell of a checkpoint whose reading ended in ``error``."""
    if isinstance(error, pickle.UnpicklingError) and "GLOBAL" in str(error):
        return UserError(
            f"{path} holds pickled objects other than tensors and plain values; loading them could "
            "run foreign code, so it is refused: use a checkpoint from a source you trust that was "
            "saved with plain types"
        )
    if isinstance(error, MemoryError) or "allocate memory" in str(error):
        return UserError(
            f"there is not the memory that {path} asks for: make room, or use another checkpoint"
        )
    # torch looks for an older format's end before the file's beginning, which is EINVAL.
    failed = error if isinstance(error, OSError) and error.errno != errno.EINVAL else None
    try:
        with path.open("rb") as stream:  # torch's reader hides the system's errors
            head = stream.read(len(_LEGACY))
            while stream.read(1 << 24):
                pass
    except OSError as unreadable:
        failed = failed or unreadable
    if failed:
        return UserError(f"cannot read {path}: {failed.strerror or failed}")
    if head.startswith(b"\x80") and not _LEGACY.startswith(head):
        return UserError(
            f"{path} is a plain pickle, which torch.save did not write, and no fairseq checkpoint: "
            f"{_INSTEAD}"
        )
    return UserError(_problem(path))


_INSTEAD = "delete it and use another one, or train again"


def _problem(path: Path) -> str:
    return f"{path} is truncated or no fairseq checkpoint: {_INSTEAD}"


def _check_structure(path: Path, state: Any) -> None:
    """Refuse what no walk through it would come to the end of, and tensors that are not there."""
    size = path.stat().st_size
    waiting = [(state, 0)]
    seen = 0
    while waiting:
        value, depth = waiting.pop()
        seen += 1
        if depth > _DEEPEST or seen > _MOST_VALUES:
            raise UserError(
                f"{path} is nested more than {_DEEPEST} deep, contains itself or has more than "
                f"{_MOST_VALUES:,} values, which no fairseq checkpoint has: use another one"
            )
        if isinstance(value, Tensor):
            _check_tensor(path, value, size)
        elif isinstance(value, int) and value.bit_length() > _MOST_BITS:
            raise foreign(path, f"it has a number of {value.bit_length()} bits")
        if isinstance(value, argparse.Namespace):
            value = vars(value)
        inner: list[Any] = []
        if isinstance(value, Mapping):
            inner = [*value.keys(), *value.values()]
        elif isinstance(value, (list, tuple, set)):
            inner = list(value)
        waiting += [(part, depth + 1) for part in inner]


def _check_tensor(path: Path, value: Tensor, size: int) -> None:
    plain = value.layout == torch.strided and value.device.type == "cpu" and not value.is_quantized
    if not plain:
        raise foreign(path, f"it has a tensor of {value.layout} on {value.device.type}")
    bytes_ = value.untyped_storage().nbytes()
    if value.numel() * value.element_size() > bytes_ or bytes_ > size:
        raise foreign(path, f"a tensor of {tuple(value.shape)} has fewer numbers in the file")


def foreign(path: Path, why: str) -> UserError:
    """What to tell of a file that is no checkpoint of fairseq's."""
    return UserError(f"{path} is no fairseq checkpoint: {why}; use another one")


def _check_parts(path: Path, state: dict[str, Any]) -> None:
    """See that the parts that are read of any model's checkpoint are named values, or absent."""
    cfg, extra = state.get("cfg"), state.get("extra_state")
    parts = {"cfg": cfg, "extra_state": extra}
    either = {"args": state.get("args")}  # mappings or namespaces
    if isinstance(cfg, dict):
        names = ("model", "task", "common", "distributed_training")
        either |= {f"cfg.{name}": cfg.get(name) for name in names}
    if isinstance(extra, dict):
        parts["train_iterator"] = extra.get("train_iterator")
    for name, part in either.items():
        parts[name] = vars(part) if isinstance(part, argparse.Namespace) else part
    for name, part in parts.items():
        if part is not None and not (isinstance(part, dict) and all_text(part)):
            raise foreign(path, f"its {name} holds no named values")


def _check_values(path: Path, state: dict[str, Any]) -> None:
    """See that weights, updates and the model's name are of the types that fairseq gives them."""
    for name, value in state["model"].items():
        real = isinstance(value, Tensor) and not value.is_complex()
        if not isinstance(name, str) or not real:
            raise foreign(path, f"its weight {name!r:.80} is no named tensor of real numbers")
    history = state.get("optimizer_history") or []
    if not isinstance(history, list):
        raise foreign(path, "its optimizer_history is no list")
    for entry in history:
        updates = entry.get("num_updates", 0) if isinstance(entry, dict) else None
        if type(updates) is not int or updates < 0 or not all_text(entry):
            raise foreign(path, f"its optimizer_history has {updates!r:.40} updates")
    options = model_options(state)
    for name in ("_name", "arch"):
        if not isinstance(options.get(name), (str, type(None))):
            raise foreign(path, f"its {name} is {options[name]!r:.40}")


def all_text(values: Iterable[Any]) -> bool:
    """Whether all values, or all keys of a mapping, are strings."""
    return all(isinstance(value, str) for value in values)


def model_options(state: dict[str, Any]) -> dict[str, Any]:
    """The model's options, be the checkpoint by fairseq-train, fairseq-hydra-train or old.

    Of those that have both, as fairseq has it, the old form's.
    """
    options = state.get("args") or (state.get("cfg") or {}).get("model") or {}
    return vars(options) if isinstance(options, argparse.Namespace) else dict(options)
