"""The one way to read a checkpoint's file: whole, of fairseq's shape, or refused in one line."""

from __future__ import annotations

import argparse
import errno
import pickle
import re
import warnings
import zipfile
from collections.abc import Iterable, Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any, get_args

import torch
from torch import Tensor

from fairseq_mhe.common.errors import UserError
from fairseq_mhe.common.files import check_input

#: What a file of torch's format before 1.6 begins with.
_LEGACY = pickle.dumps(torch.serialization.MAGIC_NUMBER, protocol=2)
#: fairseq's own checkpoints stay far below: levels of nesting, values, bits of a number.
_DEEPEST, _MOST_VALUES, _MOST_BITS = 50, 500_000, 4096
#: Largest number of layers, heads or positions.
_LARGEST = 1_000_000
#: How the names of such options end.
_SIZES = ("_dim", "_layers", "_heads", "_positions")
#: The models whose options are checked, fairseq's own and ours: their sides' stacks of layers.
_BOTH = {"encoder": "encoder", "decoder": "decoder"}
_STOCK: dict[str, dict[str, str]] = {
    "transformer": _BOTH,
    "roberta": {"encoder": "encoder.sentence_encoder"},
    "transformer_lm": {"decoder": "decoder"},
}
_SIDES = _STOCK | {f"{name}_mhe": sides for name, sides in _STOCK.items()}
#: The model whose options contain those of the others, as far as they are checked.
_OURS = "transformer_mhe"
#: Options that fairseq gives to Python's eval, and what they may consist of.
_EVALUATED = re.compile("(adaptive_.*cutoff|character_filters)")
_NUMBERS = re.compile(r"[\d\s.,()\[\]-]*")
_WORDS = {int: "a whole number", float: "a number", bool: "true or false", str: "text"}


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
            raise _foreign(path, f"it has a number of {value.bit_length()} bits")
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
        raise _foreign(path, f"it has a tensor of {value.layout} on {value.device.type}")
    bytes_ = value.untyped_storage().nbytes()
    if value.numel() * value.element_size() > bytes_ or bytes_ > size:
        raise _foreign(path, f"a tensor of {tuple(value.shape)} has fewer numbers in the file")


def _foreign(path: Path, why: str) -> UserError:
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
            raise _foreign(path, f"its {name} holds no named values")


def _check_values(path: Path, state: dict[str, Any]) -> None:
    """See that weights, updates and the model's name are of the types that fairseq gives them."""
    for name, value in state["model"].items():
        real = isinstance(value, Tensor) and not value.is_complex()
        if not isinstance(name, str) or not real:
            raise _foreign(path, f"its weight {name!r:.80} is no named tensor of real numbers")
    history = state.get("optimizer_history") or []
    if not isinstance(history, list):
        raise _foreign(path, "its optimizer_history is no list")
    for entry in history:
        updates = entry.get("num_updates", 0) if isinstance(entry, dict) else None
        if type(updates) is not int or updates < 0 or not all_text(entry):
            raise _foreign(path, f"its optimizer_history has {updates!r:.40} updates")
    options = model_options(state)
    for name in ("_name", "arch"):
        if not isinstance(options.get(name), (str, type(None))):
            raise _foreign(path, f"its {name} is {options[name]!r:.40}")


def all_text(values: Iterable[Any]) -> bool:
    """Whether all values, or all keys of a mapping, are strings."""
    return all(isinstance(value, str) for value in values)


def model_options(state: dict[str, Any]) -> dict[str, Any]:
    """The model's options, be the checkpoint by fairseq-train, fairseq-hydra-train or old."""
    options = (state.get("cfg") or {}).get("model") or state.get("args") or {}
    return vars(options) if isinstance(options, argparse.Namespace) else dict(options)


def check_transformer(path: Path, state: dict[str, Any]) -> None:
    """See that a Transformer's options are of their types and agree with its weights' sizes.

    Of models of other families, only that no option of theirs is Python code that would be run.

    Raises:
        UserError: they do not, so that building the model would fail or never end.
    """
    from fairseq.models import ARCH_MODEL_NAME_REGISTRY

    options, weights = model_options(state), state["model"]
    for name, value in options.items():
        code = isinstance(value, str) and not value.startswith("${")
        if code and _EVALUATED.fullmatch(name) and not _NUMBERS.fullmatch(value):
            raise _foreign(path, f"its {name} is {value!r:.40}, not numbers")
    arch = options.get("_name") or options.get("arch")
    model = ARCH_MODEL_NAME_REGISTRY.get(arch, arch)
    if model not in _SIDES or any("flat_param" in name for name in weights):
        return  # FSDP's shards have weights of other shapes
    widest = max((size for weight in weights.values() for size in weight.shape), default=0)
    _check_types(path, options, widest)
    for side, stack in _SIDES[model].items():
        width = _width(path, stack, weights)
        _check_sizes(path, (side, stack), width, options, weights)
        heads = options.get(f"{side}_attention_heads")
        most = width if heads is None else heads
        if not 1 <= most <= width or (model in _STOCK and width % most):
            raise _foreign(path, f"its {side}_attention_heads {heads} do not fit the width {width}")


def _width(path: Path, stack: str, weights: Mapping[str, Tensor]) -> int:
    """The width of a stack of layers: of its table of words, or of what reads adaptive inputs."""
    table = weights.get(f"{stack}.embed_tokens.weight")
    if table is None and any(n.startswith(f"{stack}.embed_tokens.embeddings.") for n in weights):
        table = weights.get(f"{stack}.layers.0.fc1.weight")
    if table is None or table.dim() != 2:
        whole = "encoder-decoder Transformer" if stack in _BOTH else "RoBERTa"
        raise UserError(f"{path} is not a whole {whole}: it has no token embeddings")
    return table.size(1)


def _check_types(path: Path, options: Mapping[str, Any], widest: int) -> None:
    """Compare options with our model's; ``widest``: the largest dimension of a weight."""
    from fairseq.models import MODEL_DATACLASS_REGISTRY
    from fairseq.utils import get_available_activation_fns

    for field in fields(MODEL_DATACLASS_REGISTRY[_OURS]):
        value = options.get(field.name)
        type_ = next(iter(get_args(field.type)), field.type)
        # A reference to another option, such as ${model.decoder_embed_dim}, is no value yet.
        if value is None or type_ not in _WORDS or str(value)[:2] == "${":
            continue
        right = isinstance(value, str) if type_ is str else isinstance(value, (bool, int, float))
        if right and type_ is int:
            right = type(value) is int
        if right and field.name.endswith(_SIZES):
            right = 0 <= value <= (widest if field.name.endswith("_dim") else _LARGEST)
        if not right:
            raise _foreign(
                path, f"its {field.name} is {value!r:.40}, not {_WORDS[type_]} that fits"
            )
    activation = options.get("activation_fn")
    if activation is not None and activation not in get_available_activation_fns():
        raise _foreign(path, f"its activation_fn {activation!r:.40} is unknown to fairseq")


def _check_sizes(
    path: Path,
    named: tuple[str, str],
    width: int,
    options: Mapping[str, Any],
    weights: Mapping[str, Tensor],
) -> None:
    """Compare the options of a side, whose stack of layers is ``named``, with its weights."""
    side, stack = named
    begin = f"{stack}.layers."
    layers = {name[len(begin) :].split(".")[0] for name in weights if name.startswith(begin)}
    sizes = {"embed_dim": width, "layers": len(layers)}
    inner = weights.get(f"{begin}0.fc1.weight")
    if inner is not None and inner.dim() == 2:
        sizes["ffn_embed_dim"] = inner.size(0)
    kept = options.get(f"{side}_layers_to_keep")
    said = {name: options.get(f"{side}_{name}") for name in sizes}
    if kept:  # the others are pruned on loading
        numbers = kept.split(",")
        said["layers"] = None
        if not all(map(str.isdecimal, numbers)) or len(numbers) > len(layers):
            raise _foreign(path, f"its {side}_layers_to_keep {kept!r:.40} are not among its layers")
    for name, found in sizes.items():
        if said[name] not in (None, found):
            raise UserError(
                f"{path}: the checkpoint is not of this model: {side}_{name} is {said[name]} in "
                f"its options, {found} in its weights; use another checkpoint"
            )
