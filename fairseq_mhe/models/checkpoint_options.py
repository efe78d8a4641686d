"""Whether a checkpoint's options can build its model: by their types, and against its weights."""

from collections.abc import Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any, get_args

from fairseq.models import ARCH_MODEL_NAME_REGISTRY, MODEL_DATACLASS_REGISTRY
from fairseq.utils import get_available_activation_fns
from torch import Tensor

from fairseq_mhe.common.checkpoint_files import foreign, model_options
from fairseq_mhe.common.errors import UserError
from fairseq_mhe.models.options import MODEL_NAME

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
_WORDS = {int: "a whole number", float: "a number", bool: "true or false", str: "text"}


def check_transformer(path: Path, state: dict[str, Any]) -> None:
    """See that a Transformer's options are of their types and agree with its weights' sizes.

    Models of other families are fairseq's business.

    Raises:
        UserError: they do not, so that building the model would fail or never end.
    """
    options, weights = model_options(state), state["model"]
    arch = options.get("_name") or options.get("arch")
    model = ARCH_MODEL_NAME_REGISTRY.get(arch, arch)
    if model not in _SIDES or any("flat_param" in name for name in weights):
        return  # FSDP's shards have weights of other shapes
    widest = max((size for weight in weights.values() for size in weight.shape), default=0)
    _check_types(path, options, widest)
    for side, stack in _SIDES[model].items():
        width = _width(path, (side, stack), options, weights)
        _check_sizes(path, (side, stack), width, options, weights)
        heads = options.get(f"{side}_attention_heads")
        most = width if heads is None else heads
        if not 1 <= most <= width or (model in _STOCK and width % most):
            raise foreign(path, f"its {side}_attention_heads {heads} do not fit the width {width}")


def _width(
    path: Path, named: tuple[str, str], options: Mapping[str, Any], weights: Mapping[str, Tensor]
) -> int:
    """The width of the stack of layers ``named``: of its token embedding, or of what reads it where
    that has a width of its own (adaptive input, --decoder-input-dim).
    """
    side, stack = named
    table = weights.get(f"{stack}.embed_tokens.weight")
    first = weights.get(f"{stack}.layers.0.fc1.weight")
    if table is None and any(n.startswith(f"{stack}.embed_tokens.embeddings.") for n in weights):
        table = first
    if table is None or table.dim() != 2:
        whole = "encoder-decoder Transformer" if stack in _BOTH else "RoBERTa"
        raise UserError(f"{path} is not a whole {whole}: it has no token embeddings")
    has_own = options.get(f"{side}_input_dim") == table.size(1)
    return (first if has_own and first is not None and first.dim() == 2 else table).size(1)


def _check_types(path: Path, options: Mapping[str, Any], widest: int) -> None:
    """Compare options with those of our Transformer, which has the others' as far as they matter.

    ``widest``: the largest dimension of a weight.
    """
    for field in fields(MODEL_DATACLASS_REGISTRY[MODEL_NAME]):
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
            raise foreign(path, f"its {field.name} is {value!r:.40}, not {_WORDS[type_]} that fits")
    activation = options.get("activation_fn")
    if activation is not None and activation not in get_available_activation_fns():
        raise foreign(path, f"its activation_fn {activation!r:.40} is unknown to fairseq")


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
            raise foreign(path, f"its {side}_layers_to_keep {kept!r:.40} are not among its layers")
    for name, found in sizes.items():
        if said[name] not in (None, found):
            raise UserError(
                f"{path}: the checkpoint is not of this model: {side}_{name} is {said[name]} in "
                f"its options, {found} in its weights; use another checkpoint"
            )
