"""A checkpoint of a Transformer, stock or ours, as a model in memory, and back."""

import argparse
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from fairseq import checkpoint_utils
from fairseq.dataclass import FairseqDataclass
from fairseq.models import BaseFairseqModel
from fairseq.tasks import TASK_DATACLASS_REGISTRY
from fairseq.tasks.translation import TranslationConfig
from torch import Tensor, nn

from fairseq_mhe.checkpoints.safe_load import (
    PROVENANCE,
    SOURCES,
    plain,
    provenance,
    save_checkpoint,
    updates_made,
)
from fairseq_mhe.common.checkpoint_files import model_options, read_checkpoint
from fairseq_mhe.common.errors import ErrorExit, UserError
from fairseq_mhe.common.files import sha256
from fairseq_mhe.common.system import installed
from fairseq_mhe.models.build import build_ours
from fairseq_mhe.models.families import ROBERTA, TRANSLATION, Family, family_of
from fairseq_mhe.models.options import OPTIONS


@dataclass(frozen=True)
class Source:
    """A checkpoint that was read: what fairseq saved, its options, and the model.

    The model is of our kind even where the checkpoint was of fairseq's own (``stock``).
    """

    path: Path
    state: dict[str, Any]
    options: dict[str, Any]
    model: nn.Module
    stock: bool

    @property
    def attention(self) -> dict[str, str]:
        """The kind of attention at each place that the model has."""
        return self.family.kinds(self.options)

    @property
    def family(self) -> Family:
        """What models are of its shape."""
        return family_of(self.options)

    @property
    def row(self) -> str:
        """The row of its family that it is nearest to."""
        return self.family.nearest_row(self.options)[0]

    @property
    def attention_words(self) -> str:
        """The kinds at all places in a few words."""
        if len(set(self.attention.values())) == 1:
            return next(iter(self.attention.values()))
        return ", ".join(f"{place} {kind}" for place, kind in self.attention.items())

    @property
    def words(self) -> tuple[int, ...]:
        """How many words its dictionaries have: the source's and the target's, or the one."""
        return self.family.words(self.state["model"])

    @property
    def stock_options(self) -> dict[str, Any]:
        """The options of fairseq's own model of the same sizes."""
        sizes = {name: value for name, value in self.options.items() if name not in OPTIONS}
        return {**sizes, "_name": self.family.stock, "arch": self.family.stock}

    def task(self) -> Any:
        """A task of the model with dictionaries of the right sizes and made-up words."""
        return self.family.task(*self.words)

    def only_translation(self, what: str) -> None:
        """Raises UserError where the model is none of translation, which ``what`` is for."""
        if self.family is not TRANSLATION:
            raise UserError(
                f"{what} is for translation models, but {self.path} is a {self.family.stock}: "
                "there is nothing to use instead"
            )

    def other_kind(self, kind: str, bias: bool, **own: Any) -> dict[str, Any]:
        """The options with attention of one kind at all places; ``own``: the kind's own options."""
        ours = dict.fromkeys(name for name in OPTIONS if name in self.options)
        chosen = {
            "_name": self.family.arch(self.row),
            "attention": kind,
            "attention_bias": bias,
            "attention_head_dim": self.options["attention_head_dim"],
            **own,
        }
        return {**self.options, **ours, **chosen}


def open_source(path: Path) -> Source:
    """Read a checkpoint of a model of fairseq's or of ours, in float32 and evaluation mode.

    ``path``: the checkpoint, or a run folder, whose model.pt it is.

    Raises:
        UserError: it cannot be read safely, or is of another model.
    """
    if path.is_dir():
        path = path / "model.pt"
    return source_of(path, read_checkpoint(path))


def source_of(path: Path, state: dict[str, Any]) -> Source:
    """As `open_source`, from what was read from ``path``.

    Raises:
        UserError: it is of another model, its options and weights do not fit together, or a weight
            is not a finite number.
    """
    try:
        options, stock = _options(state)
        family = family_of(options)
        model = build_ours(options, family.task(*family.words(state["model"])))
        config = argparse.Namespace(**{**options, "arch": family.name})
        model.load_state_dict(dict(state["model"]), model_cfg=config)
    except ErrorExit as error:
        raise UserError(f"{path}: {error.message}") from None
    except UserError as error:
        raise UserError(f"{path}: {error}") from None
    except Exception as error:  # fairseq does not check options
        raise UserError(f"no model can be made of {path}: {error!r}") from error
    for name, weight in model.named_parameters():
        if not weight.isfinite().all():
            raise UserError(
                f"{path}: the weight {name} has values that are no finite numbers, as after a "
                "training that has diverged: use an earlier checkpoint"
            )
    return Source(path, state, options, model.eval(), stock)


def load_by_fairseq(
    path: Path, task: Any, overrides: Mapping[str, Any] | None = None
) -> BaseFairseqModel:
    """The model of a checkpoint as fairseq's own commands load it, stock where it is stock."""
    (model,), _ = checkpoint_utils.load_model_ensemble([str(path)], overrides, task=task)
    return model.eval()


def save_model(
    source: Source,
    options: Mapping[str, Any],
    parameters: Mapping[str, Tensor],
    path: Path,
    made: Mapping[str, Any],
) -> None:
    """Write a checkpoint that fairseq loads, in plain values.

    Args:
        source: what the model comes from.
        options: of the model, ``_name`` (its architecture) among them.
        parameters: its whole state.
        path: the file, written whole or not at all.
        made: how it was made, ``made_by`` among it.
    """
    cfg = plain(source.state.get("cfg") or {})
    task = cfg.get("task") or plain(_task_options(source.state.get("args")))
    cfg["task"] = task
    cfg["model"] = plain({**options, "arch": options["_name"]})
    if isinstance(cfg.get("common"), dict):
        cfg["common"]["user_dir"] = None
    history = source.state.get("optimizer_history") or [{}]
    last = {"lr_scheduler_state": {}, "optimizer_name": "", "criterion_name": "", **history[-1]}
    origin = {
        "name": source.path.name,
        "sha256": sha256(source.path),
        "attention": source.attention,
    }
    versions = installed(("fairseq-mhe", "torch"))
    before = provenance(source.state) or None
    state = {
        "args": _with_attributes({**task, "task": task["_name"], **cfg["model"]}),
        "cfg": cfg,
        "model": dict(parameters),
        "optimizer_history": [{**plain(last), "num_updates": updates_made(source.state)}],
        "task_state": {},
        "extra_state": {"train_iterator": {"epoch": 1}},
        PROVENANCE: plain({**made, "source": origin, "before": before, "versions": versions}),
    }
    if SOURCES in source.state:
        state[SOURCES] = source.state[SOURCES]
    save_checkpoint(state, path)


def _options(state: dict[str, Any]) -> tuple[dict[str, Any], bool]:
    """Every option of our model for what was saved, and whether it is of fairseq's own."""
    given = model_options(state)
    family = family_of(given)
    options = {name: plain(value) for name, value in family.options(given).items()}
    # What files of pretrained embeddings gave is in the checkpoint, and so are trained heads.
    if family is TRANSLATION:
        options |= {"encoder_embed_path": None, "decoder_embed_path": None}
    if family is ROBERTA:
        options |= {"load_checkpoint_heads": True}
    options["_name"] = options.get("_name") or given.get("arch")
    return options, family.is_stock(given)


def _with_attributes(options: Mapping[str, Any]) -> OrderedDict[str, Any]:
    """Options as a dictionary whose items are attributes too, as those of a namespace are.

    CTranslate2's converter reads attributes; torch's weights-only mode refuses namespaces.
    """
    both = OrderedDict(options)
    vars(both).update(options)
    return both


def _task_options(args: argparse.Namespace | None) -> dict[str, Any]:
    """The task's part of an old checkpoint's options."""
    name = getattr(args, "task", "translation")
    known: type[FairseqDataclass] = TASK_DATACLASS_REGISTRY.get(name, TranslationConfig)
    return {
        "_name": name,
        **{f.name: getattr(args, f.name) for f in fields(known) if hasattr(args, f.name)},
    }
