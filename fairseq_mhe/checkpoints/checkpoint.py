"""A checkpoint of fairseq's Transformer, stock or ours, as a model in memory, and a model as a checkpoint of either."""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields
from importlib import metadata
from pathlib import Path
from typing import Any

import torch
from fairseq.data import Dictionary
from fairseq.dataclass import FairseqDataclass
from fairseq.models import ARCH_CONFIG_REGISTRY, ARCH_MODEL_NAME_REGISTRY
from fairseq.tasks import TASK_DATACLASS_REGISTRY
from fairseq.tasks.translation import TranslationConfig, TranslationTask
from torch import Tensor, nn

from fairseq_mhe.attention import Attention
from fairseq_mhe.checkpoints.average import SOURCES
from fairseq_mhe.checkpoints.safe_load import (
    PROVENANCE,
    load_checkpoint,
    model_options,
    provenance,
    updates_made,
)
from fairseq_mhe.common.errors import ErrorExit, UserError
from fairseq_mhe.common.files import atomic_path, sha256
from fairseq_mhe.models.architectures import arch_name
from fairseq_mhe.models.rows import nearest_row
from fairseq_mhe.models.transformer import (
    MODEL_NAME,
    OPTIONS,
    TransformerMHEConfig,
    TransformerMHEModel,
    kinds,
)

#: fairseq's own model.
STOCK_NAME = "transformer"


@dataclass(frozen=True)
class Source:
    """A checkpoint that was read: what fairseq saved, its options, and the model, of our kind even if it was stock."""

    path: Path
    state: dict[str, Any]
    options: dict[str, Any]
    model: nn.Module
    stock: bool

    @property
    def attention(self) -> dict[str, str]:
        """The kind of attention at each place."""
        return kinds(argparse.Namespace(**self.options))

    @property
    def words(self) -> tuple[int, int]:
        """How many words the source's and the target's dictionary have."""
        return _words(self.model.state_dict())

    def task(self) -> TranslationTask:
        """A translation task with dictionaries of the right sizes and made-up words."""
        return _made_up_task(*self.words)


def open_source(path: Path) -> Source:
    """Read a checkpoint of fairseq's ``transformer`` or of ours, in float32 and evaluation mode.

    Raises:
        UserError: it cannot be read safely, or is of another model.
    """
    state = load_checkpoint(path)
    given = model_options(state)
    stock = _model_name(path, given) == STOCK_NAME
    options = _options(given, stock)
    try:
        words = _words(state["model"])
    except (KeyError, AttributeError, IndexError):
        raise UserError(
            f"{path} is not a whole encoder-decoder Transformer: it has no token embeddings"
        ) from None
    try:
        model = TransformerMHEModel.build_model(
            argparse.Namespace(**options), _made_up_task(*words)
        )
        model.load_state_dict(
            dict(state["model"]), model_cfg=argparse.Namespace(arch=MODEL_NAME, **options)
        )
    except ErrorExit as error:
        raise UserError(f"{path}: {error.message}") from None
    for side in ("encoder", "decoder"):  # pruned on loading
        options |= {
            f"{side}_layers": len(model.get_submodule(side).layers),
            f"{side}_layers_to_keep": None,
        }
    return Source(path, state, options, model.eval(), stock)


def sublayers(model: nn.Module) -> Iterator[tuple[str, str, Attention]]:
    """Each attention sublayer: its name in the model, its place (a key of ``PLACES``), and itself."""
    for name, module in model.named_modules():
        if isinstance(module, Attention):
            yield name, place_of(name), module


def place_of(name: str) -> str:
    """The place of a sublayer or of one of its parameters, from its name."""
    if ".encoder_attn" in name:
        return "cross"
    return name.split(".")[0]


def build(options: Mapping[str, Any], source: Source) -> nn.Module:
    """A model of ours with other options over the vocabulary of ``source``, freshly initialised, not training.

    Raises:
        UserError: the options do not fit together.
    """
    try:
        return TransformerMHEModel.build_model(argparse.Namespace(**options), source.task()).eval()
    except ErrorExit as error:
        raise UserError(error.message) from None


def changed_options(source: Source, kind: str, bias: bool, **own: Any) -> dict[str, Any]:
    """The options of ``source`` with attention of one kind at all places; ``own``: the kind's own options."""
    kept = {"attention_head_dim": source.options["attention_head_dim"]}
    return {
        **source.options,
        **dict.fromkeys(OPTIONS),
        **kept,
        "attention": kind,
        "attention_bias": bias,
        **own,
    }


def save_stock(
    source: Source, parameters: Mapping[str, Tensor], path: Path, made: Mapping[str, Any]
) -> None:
    """Write a checkpoint of fairseq's own ``transformer``; ``parameters`` is its whole state."""
    options = {name: value for name, value in source.options.items() if name not in OPTIONS}
    _save(source, {**options, "_name": STOCK_NAME, "arch": STOCK_NAME}, parameters, path, made)


def save_ours(
    source: Source,
    options: Mapping[str, Any],
    parameters: Mapping[str, Tensor],
    path: Path,
    made: Mapping[str, Any],
) -> None:
    """Write a checkpoint of our model with ``options``; ``parameters`` is its whole state."""
    _save(
        source, {**options, "_name": arch_name(nearest_row(options).name)}, parameters, path, made
    )


def plain(value: Any) -> Any:
    """A copy in dictionaries, lists, numbers, strings and None only, so that it loads anywhere."""
    if isinstance(value, argparse.Namespace):
        value = vars(value)
    if isinstance(value, Mapping):
        return {str(key): plain(inner) for key, inner in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(inner) for inner in value]
    return value if isinstance(value, (bool, int, float, str, type(None))) else str(value)


def describe_attention(attention: Mapping[str, str]) -> str:
    """The kinds at all places in a few words."""
    if len(set(attention.values())) == 1:
        return next(iter(attention.values()))
    return ", ".join(f"{place} {kind}" for place, kind in attention.items())


def refuse_same_file(source: Path, output: Path) -> None:
    """Keep a command from writing over what it reads.

    Raises:
        UserError: both are one file.
    """
    if source.resolve() == output.resolve():
        raise UserError(f"{output} is the input: name another file for the output")


def _save(
    source: Source,
    model: Mapping[str, Any],
    parameters: Mapping[str, Tensor],
    path: Path,
    made: Mapping[str, Any],
) -> None:
    cfg = plain(source.state.get("cfg") or {"task": _task_options(source.state.get("args"))})
    cfg["model"] = plain(model)
    if isinstance(cfg.get("common"), dict):
        cfg["common"]["user_dir"] = None
    history = source.state.get("optimizer_history") or [{}]
    last = {"lr_scheduler_state": {}, "optimizer_name": "", "criterion_name": "", **history[-1]}
    state = {
        "args": None,
        "cfg": cfg,
        "model": dict(parameters),
        "optimizer_history": [{**plain(last), "num_updates": updates_made(source.state)}],
        "task_state": {},
        "extra_state": {"train_iterator": {"epoch": 1}},
        PROVENANCE: plain(
            {
                **made,
                "source": {
                    "name": source.path.name,
                    "sha256": sha256(source.path),
                    "attention": source.attention,
                },
                "before": provenance(source.state) or None,
                "versions": {name: metadata.version(name) for name in ("fairseq-mhe", "torch")},
            }
        ),
    }
    if SOURCES in source.state:
        state[SOURCES] = source.state[SOURCES]
    with atomic_path(path) as temporary:
        try:
            torch.save(state, temporary)
        except RuntimeError as error:  # torch's writer hides the OSError of a full disk
            raise UserError(f"cannot write {path}: {error}") from None


def _model_name(path: Path, options: Mapping[str, Any]) -> str:
    """``transformer`` or ``transformer_mhe``."""
    arch = options.get("_name") or options.get("arch")
    name = ARCH_MODEL_NAME_REGISTRY.get(arch, arch)
    if name not in (STOCK_NAME, MODEL_NAME):
        raise UserError(
            f"{path} holds a model of architecture {arch!r}: only {STOCK_NAME} and {MODEL_NAME} are understood"
        )
    return name


def _options(given: Mapping[str, Any], stock: bool) -> dict[str, Any]:
    """Every option of our model as a plain value, as the checkpoint, its architecture or our defaults say."""
    filled = argparse.Namespace(**given)
    if stock:
        ARCH_CONFIG_REGISTRY[given.get("arch") or given["_name"]](filled)
    known = {f.name: f.default for f in fields(TransformerMHEConfig)}
    options = {name: plain(getattr(filled, name, default)) for name, default in known.items()}
    for name in ("decoder_input_dim", "decoder_output_dim"):
        if not isinstance(options[name], int):  # an unresolved reference to the decoder's width
            options[name] = options["decoder_embed_dim"]
    if stock:
        options |= dict.fromkeys(OPTIONS) | {"attention": "mha", "attention_bias": True}
    # What a file of pretrained embeddings gave is in the checkpoint.
    return options | {"encoder_embed_path": None, "decoder_embed_path": None}


def _words(parameters: Mapping[str, Tensor]) -> tuple[int, int]:
    """The rows of both sides' tables of words."""
    source, target = (
        parameters[f"{side}.embed_tokens.weight"].size(0) for side in ("encoder", "decoder")
    )
    return source, target


def _task_options(args: argparse.Namespace | None) -> dict[str, Any]:
    """The task's part of an old checkpoint's options."""
    name = getattr(args, "task", "translation")
    known: type[FairseqDataclass] = TASK_DATACLASS_REGISTRY.get(name, TranslationConfig)
    return {
        "_name": name,
        **{f.name: getattr(args, f.name) for f in fields(known) if hasattr(args, f.name)},
    }


def _made_up_task(source_words: int, target_words: int) -> TranslationTask:
    source = _made_up_dictionary(source_words)
    target = source if target_words == source_words else _made_up_dictionary(target_words)
    return TranslationTask(TranslationConfig(), source, target)


def _made_up_dictionary(words: int) -> Dictionary:
    dictionary = Dictionary()
    for index in range(words - len(dictionary)):
        dictionary.add_symbol(f"word{index}")
    return dictionary
