"""Loads the checkpoint of a Transformer, stock or ours, as a model of ours, and saves models."""

import argparse
import json
import os
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import torch
from fairseq import checkpoint_utils
from fairseq.dataclass import FairseqDataclass
from fairseq.models import BaseFairseqModel
from fairseq.tasks import TASK_DATACLASS_REGISTRY
from fairseq.tasks.translation import TranslationConfig
from torch import Tensor

from fairseq_mhe.common.checkpoint_files import model_options, read_checkpoint
from fairseq_mhe.common.errors import UserError
from fairseq_mhe.common.files import sha256
from fairseq_mhe.common.system import installed
from fairseq_mhe.common.tables import listed
from fairseq_mhe.models.build import build_ours
from fairseq_mhe.models.configs import OPTIONS
from fairseq_mhe.models.families import ROBERTA, TRANSLATION, Family, family_of
from fairseq_mhe.safe_loading import literals_only

#: The key under which our commands record how they made a checkpoint.
PROVENANCE = "fairseq_mhe"
#: The key under which an averaged checkpoint names its sources.
SOURCES = "averaged_from"


def updates_made(state: dict[str, Any]) -> int:
    """Return how many updates a checkpoint's model was trained for."""
    history = state.get("optimizer_history") or [{}]
    return int(history[-1].get("num_updates", 0))


def provenance(state: dict[str, Any]) -> dict[str, Any]:
    """Return what a command of ours recorded about making a checkpoint; empty if none made it."""
    return plain(state.get(PROVENANCE) or {})


def plain(value: Any) -> Any:
    """Return a copy of only dictionaries, lists, numbers, strings and None, which load anywhere."""

    def to_plain(other: Any) -> Any:
        return vars(other) if isinstance(other, argparse.Namespace) else str(other)

    return json.loads(json.dumps(value, default=to_plain, skipkeys=True))


@dataclass(frozen=True)
class Source:
    """A checkpoint as fairseq saved it, and as a model of ours, even if it was a stock model."""

    path: Path
    state: dict[str, Any]
    options: dict[str, Any]  # of ``model``
    family: Family
    model: Any

    @property
    def row(self) -> str:
        """The row with the fewest differences from the model's sizes."""
        return self.family.nearest_row(self.options)[0]

    @property
    def attention(self) -> dict[str, str]:
        """The kind of attention at each of the model's places ("encoder", "decoder", "cross")."""
        return self.family.kinds(self.options)

    @property
    def attention_summary(self) -> str:
        """The kind, or a list such as "encoder mha, decoder mqa" if kinds differ."""
        kinds = self.attention
        if len(set(kinds.values())) == 1:
            return next(iter(kinds.values()))
        return listed(kinds)

    @property
    def vocab_sizes(self) -> tuple[int, ...]:
        """The numbers of words in the source's and target's dictionary, or in the only one."""
        return self.family.vocab_sizes(self.state["model"])

    @property
    def stock_options(self) -> dict[str, Any]:
        """The options of fairseq's own model with the same sizes."""
        sizes = {k: value for k, value in self.options.items() if k not in OPTIONS}
        return {**sizes, "_name": self.family.stock, "arch": self.family.stock}

    @property
    def task_options(self) -> dict[str, Any]:
        """The options of the task that the model was trained on, such as its folder "data"."""
        options: dict[str, Any] = plain((self.state.get("cfg") or {}).get("task"))
        options = options or plain(_task_options(self.state.get("args")))
        if isinstance(options.get("data"), list):  # in fairseq 0.8 and before
            options["data"] = os.pathsep.join(options["data"])
        return options

    def task(self) -> Any:
        """Return a fairseq task with dictionaries of `vocab_sizes`, filled with made-up words."""
        return self.family.task(*self.vocab_sizes)

    def require_translation(self, feature: str) -> None:
        """Raise UserError unless this is a translation model, which ``feature`` needs."""
        if self.family is not TRANSLATION:
            raise UserError(
                f"{feature} is for translation models, but {self.path} is a {self.family.stock}: "
                "leave it out, or use another checkpoint"
            )

    def options_of_kind(self, kind: str, bias: bool, **sizes: Any) -> dict[str, Any]:
        """Return the options with ``kind`` at all places; ``sizes``: its size options."""
        unset = dict.fromkeys(name for name in OPTIONS if name in self.options)
        chosen = {
            "_name": self.family.arch(self.row),
            "attention": kind,
            "attention_bias": bias,
            "attention_head_dim": self.options["attention_head_dim"],
        }
        return {**self.options, **unset, **chosen, **sizes}


def checkpoint_path(path: Path) -> Path:
    """Return the path of a checkpoint, or of the model in a run folder."""
    if not path.is_dir():
        return path
    # Only the run of a language model has scores here; its model is no average.
    is_language_model = (path / "scores.json").exists()
    return path / ("checkpoints/checkpoint_last.pt" if is_language_model else "model.pt")


def open_source(path: Path) -> Source:
    """Open a checkpoint, or a run folder's model, as a float32 model in evaluation mode."""
    path = checkpoint_path(path)
    return source_of(path, read_checkpoint(path))


def source_of(path: Path, state: dict[str, Any]) -> Source:
    """Return the `Source` of a state; UserError if no model fits it or a weight is not finite."""
    try:
        options = _options(state)
        family = family_of(options)
        with literals_only():
            model = build_ours(options, family.task(*family.vocab_sizes(state["model"])))
        config = argparse.Namespace(**{**options, "arch": family.name})
        model.load_state_dict(dict(state["model"]), model_cfg=config)
    except UserError as error:
        raise UserError(f"{path}: {error}") from None
    except Exception as error:  # fairseq does not check options: wrong ones fail anywhere
        problem = f"cannot build a model from {path}: {error!r}"
        raise UserError(f"{problem}; use another checkpoint") from error
    for name, weight in model.named_parameters():
        if not weight.isfinite().all():
            raise UserError(f"{path}: {not_finite(name)}")
    return Source(path, state, options, family, model.eval())


def not_finite(name: str) -> str:
    """Return the message about a weight with NaN or infinity: what is wrong, and what to do."""
    problem = f"the weight {name} is not finite, as after a training that diverged"
    return f"{problem}: use an earlier checkpoint"


def _options(state: dict[str, Any]) -> dict[str, Any]:
    """Return every option of our model for a saved state."""
    saved = model_options(state)
    family = family_of(saved)
    options = {name: plain(value) for name, value in family.options(saved).items()}
    # The checkpoint itself holds pretrained embeddings and trained classification heads.
    if family is TRANSLATION:
        options |= {"encoder_embed_path": None, "decoder_embed_path": None}
    if family is ROBERTA:
        options |= {"load_checkpoint_heads": True}
    options["_name"] = options.get("_name") or saved.get("arch")
    return options


def load_by_fairseq(path: Path, task: Any) -> BaseFairseqModel:
    """Load a model as fairseq's own commands do: a stock checkpoint gives a stock model."""
    (model,), _ = checkpoint_utils.load_model_ensemble([str(path)], task=task)
    return model.eval()


def save_model(
    source: Source,
    options: Mapping[str, Any],
    parameters: Mapping[str, Tensor],
    path: Path,
    facts: Mapping[str, Any],
) -> None:
    """Write a checkpoint of plain values, which fairseq loads, to a path of `atomic_path`.

    ``parameters``: the model's whole state; ``facts``: how it was made, including ``made_by``.
    """
    cfg = plain(source.state.get("cfg") or {})
    task = source.task_options
    model = plain({**options, "arch": options["_name"]})
    cfg |= {"task": task, "model": model}
    if isinstance(cfg.get("common"), dict):
        cfg["common"]["user_dir"] = None
    required = {"lr_scheduler_state": {}, "optimizer_name": "", "criterion_name": ""}
    updates = {"num_updates": updates_made(source.state)}
    origin = {"name": source.path.name, "sha256": sha256(source.path)}
    record = {
        **facts,
        "source": {**origin, "attention": source.attention},
        "before": provenance(source.state) or None,
        "versions": installed(("fairseq-mhe", "torch")),
    }
    # CTranslate2's converter reads options as attributes: here items are attributes, too.
    args = OrderedDict({**task, "task": task["_name"], **model})
    vars(args).update(args)
    state = {
        "args": args,
        "cfg": cfg,
        "model": dict(parameters),
        "optimizer_history": [{**required, **updates}],
        "task_state": {},
        "extra_state": {"train_iterator": {"epoch": 1}},
        PROVENANCE: plain(record),
    }
    if SOURCES in source.state:
        state[SOURCES] = source.state[SOURCES]
    save_checkpoint(state, path)


def save_checkpoint(state: Mapping[str, Any], path: Path) -> None:
    """Write a checkpoint to a path of `atomic_path`; equal content gives equal bytes."""
    try:
        # Given a path, torch would write its name, which is temporary, into the file.
        with path.open("wb") as stream:
            torch.save(state, stream)
    except RuntimeError as error:
        cause = error.__context__  # such as a full disk, which torch's writer hides
        if isinstance(cause, OSError):
            raise cause from None
        raise


def _task_options(args: argparse.Namespace | None) -> dict[str, Any]:
    """Return the task's options among all options of an old checkpoint."""
    name = getattr(args, "task", "translation")
    known: type[FairseqDataclass] = TASK_DATACLASS_REGISTRY.get(name, TranslationConfig)
    declared = {field.name for field in fields(known)}
    options = vars(args) if args else {}
    return {k: value for k, value in options.items() if k in declared} | {"_name": name}
