"""``fairseq-mhe inspect``: what a checkpoint is, from its weights and options; nothing is run."""

import argparse
import json
from pathlib import Path
from typing import Any

import torch
from fairseq.models import ARCH_MODEL_NAME_REGISTRY
from torch import Tensor

from fairseq_mhe.checkpoints.safe_load import (
    PROVENANCE,
    SOURCES,
    plain,
    provenance,
    updates_made,
)
from fairseq_mhe.common.checkpoint_files import model_options, read_checkpoint
from fairseq_mhe.common.errors import UserError, one_line
from fairseq_mhe.common.tables import align
from fairseq_mhe.models.build import place_of
from fairseq_mhe.models.families import family_of
from fairseq_mhe.models.options import PLACES, kind_options

#: In the names of weights of embeddings and outputs, which are often one and the same.
_OFTEN_TIED = (".embed_tokens.", "decoder.output_projection.weight", "encoder.lm_head.weight")


def inspect(path: Path) -> dict[str, Any]:
    """What is known of a checkpoint of any fairseq model, as plain values.

    ``kinds``: kind of attention by place; None where the model is not one that we know.
    ``attention_parameters``: by place; ``parameters``: all, shared ones once; ``dtypes``: of the
    weights; ``made_by``: which of our commands wrote it, None after training.

    Raises:
        UserError: it cannot be read safely.
    """
    state = read_checkpoint(path)
    options = model_options(state)
    architecture = str(options.get("arch") or options.get("_name") or "unknown")
    made = provenance(state)
    try:
        family = family_of(options)
    except UserError:  # a model that we know nothing of
        family = None
    weights = {
        name: value for name, value in state["model"].items() if isinstance(value, Tensor)
    }
    row, differences = family.nearest_row(options) if family else (None, {})
    given = {name: options[name] for name in kind_options() if options.get(name) is not None}
    places = family.places if family else tuple(PLACES)
    return {
        "path": str(path),
        "model": str(ARCH_MODEL_NAME_REGISTRY.get(architecture, architecture)),
        "architecture": architecture,
        "row": row,
        "row_differences": plain(differences),
        "kinds": family.kinds(options) if family else None,
        "options": plain(given),
        "attention_parameters": {
            place: _attention_parameters(weights, place) for place in places
        },
        "parameters": _parameters(weights),
        "dtypes": sorted(
            {str(value.dtype).removeprefix("torch.") for value in weights.values()}
        ),
        "updates": updates_made(state),
        "resumable": state.get("last_optimizer_state") is not None,
        "averaged_from": plain(state.get(SOURCES, [])),
        "made_by": {name: value for name, value in made.items() if name != "versions"} or None,
        "versions": made.get("versions", {}),
    }


def _attention_parameters(weights: dict[str, Tensor], place: str) -> int:
    """The parameters of the attention sublayers at a place."""
    return sum(
        value.numel()
        for name, value in weights.items()
        if (".self_attn." in name or ".encoder_attn." in name) and place_of(name) == place
    )


def _parameters(weights: dict[str, Tensor]) -> int:
    """Numbers in parameters: tied embeddings once, fairseq's version marks not at all."""
    total, tables = 0, list[Tensor]()
    for name, value in weights.items():
        if name.endswith((".version", "._float_tensor")):
            continue
        if any(part in name for part in _OFTEN_TIED):
            # Compared by value: a checkpoint saved from a GPU holds tied tables apart.
            if any(torch.equal(value, table) for table in tables):
                continue
            tables.append(value)
        total += value.numel()
    return total


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of ``fairseq-mhe inspect``."""
    parser.add_argument(
        "checkpoint", type=Path, metavar="CKPT", help="a fairseq checkpoint, stock or ours"
    )
    parser.add_argument("--json", action="store_true", help="print JSON, for programs")


def run(args: argparse.Namespace) -> None:
    """Print the summary."""
    summary = inspect(args.checkpoint)
    if args.json:
        print(json.dumps(summary, indent=2))
        return
    # A terminal would obey control codes that are in the checkpoint.
    lines = [(name, one_line(value)) for name, value in describe(summary).items()]
    heading = ("checkpoint", one_line(summary["path"]))
    print(align(heading, lines, left=(0, 1)))


def describe(summary: dict[str, Any]) -> dict[str, str]:
    """The summary in words, by what each line is about."""
    lines = {"model": f"{summary['model']} ({summary['architecture']})"}
    if summary["row"]:
        differences = _listed(summary["row_differences"])
        lines["row"] = summary["row"] + (f", but {differences}" if differences else "")
    for place, count in summary["attention_parameters"].items():
        kind = summary["kinds"][place] if summary["kinds"] else "?"
        lines[f"{place} attention"] = f"{kind}, {count:,} parameters"
    lines["options"] = _listed(summary["options"]) or "defaults"
    lines["all parameters"] = f"{summary['parameters']:,} ({', '.join(summary['dtypes'])})"
    lines["training updates"] = f"{summary['updates']:,}"
    lines["training can resume"] = "yes" if summary["resumable"] else "no (no optimizer state)"
    lines["averaged from"] = ", ".join(summary["averaged_from"]) or "nothing"
    lines["made by"] = _made_by(summary["made_by"])
    lines["versions"] = _listed(summary["versions"]) or "not stored"
    return lines


def _listed(values: dict[str, Any]) -> str:
    return ", ".join(f"{name} {value}" for name, value in values.items())


def _made_by(made: dict[str, Any] | None) -> str:
    """How our commands made it, the last first, and from what."""
    steps = []
    while made:
        source = made["source"]
        words = ", ".join(dict.fromkeys(source["attention"].values()))
        steps.append(f"{made['made_by']} from {source['name']} ({words})")
        made = made["before"]
    return ", that by ".join(steps) or f"training, or a tool that leaves no {PROVENANCE!r} mark"
