"""``fairseq-mhe inspect``: describes a checkpoint by its weights and options; runs no model."""

import argparse
import json
from pathlib import Path
from typing import Any

import torch
from fairseq.models import ARCH_MODEL_NAME_REGISTRY
from torch import Tensor

from fairseq_mhe.checkpoints import checkpoint
from fairseq_mhe.common.checkpoint_files import model_options, read_checkpoint
from fairseq_mhe.common.errors import UserError, one_line
from fairseq_mhe.common.tables import align, listed
from fairseq_mhe.models.families import family_of
from fairseq_mhe.models.options import kind_options, place_of

#: Parts of the names of embeddings and output projections, which often share one weight.
_OFTEN_TIED = (
    ".embed_tokens.",
    "decoder.output_projection.weight",
    "decoder.adaptive_softmax.",
    "encoder.lm_head.weight",
)


def inspect(path: Path) -> dict[str, Any]:
    """Describe the checkpoint of a Transformer of fairseq's or of ours, in plain values.

    ``parameters``: shared ones count once; ``made_by``: a command's record, None after training;
    ``not_finite``: the weights with NaN or infinity, as after a training that diverged.
    Raises UserError if the file cannot be read safely, or if it is of another model.
    """
    path = checkpoint.checkpoint_path(path)
    state = read_checkpoint(path)
    options = model_options(state)
    try:
        family = family_of(options)
    except UserError as error:
        raise UserError(f"{path}: {error}") from None
    architecture = str(options.get("arch") or options.get("_name"))
    row, differences = family.nearest_row(options)
    weights: dict[str, Tensor] = state["model"]
    attention = dict.fromkeys(family.model.PLACES, 0)
    for name, value in weights.items():
        if ".self_attn." in name or ".encoder_attn." in name:
            attention[place_of(name)] += value.numel()
    chosen = {n: options[n] for n in kind_options() if options.get(n) is not None}
    dtypes = {str(x.dtype).removeprefix("torch.") for x in weights.values()}
    history = checkpoint.provenance(state)
    versions = history.pop("versions", {})
    return {
        "path": str(path),
        "model": ARCH_MODEL_NAME_REGISTRY.get(architecture, architecture),
        "architecture": architecture,
        "row": row,
        "row_differences": checkpoint.plain(differences),
        "kinds": family.kinds(options),
        "options": checkpoint.plain(chosen),
        "attention_parameters": attention,
        "parameters": _parameters(weights),
        "dtypes": sorted(dtypes),
        "not_finite": [n for n, weight in weights.items() if not weight.isfinite().all()],
        "updates": checkpoint.updates_made(state),
        "resumable": state.get("last_optimizer_state") is not None,
        "averaged_from": checkpoint.plain(state.get(checkpoint.SOURCES, [])),
        "made_by": history or None,
        "versions": versions,
    }


def _parameters(weights: dict[str, Tensor]) -> int:
    """Count the parameters: tied embeddings once, fairseq's version marks not at all."""
    total = 0
    tables: list[Tensor] = []
    for name, value in weights.items():
        if name.endswith((".version", "._float_tensor")):
            continue
        if any(part in name for part in _OFTEN_TIED):
            # Compared by value: a checkpoint saved from a GPU has a copy of each tied table.
            if any(torch.equal(value, table) for table in tables):
                continue
            tables.append(value)
        total += value.numel()
    return total


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of ``fairseq-mhe inspect``."""
    add = parser.add_argument
    help_ = "run folder, or checkpoint (stock fairseq's, too)"
    add("checkpoint", type=Path, metavar="CKPT", help=help_)
    add("--json", action="store_true", help="print JSON, for programs")


def run(args: argparse.Namespace) -> None:
    """Print the summary as a table, or as JSON."""
    summary = inspect(args.checkpoint)
    if args.json:
        print(json.dumps(summary, indent=2))
        return
    # one_line escapes control characters in the checkpoint, which a terminal would obey.
    lines = [(name, one_line(value)) for name, value in describe(summary).items()]
    heading = ("checkpoint", one_line(summary["path"]))
    print(align(heading, lines, left=(0, 1)))


def describe(summary: dict[str, Any]) -> dict[str, str]:
    """Return the summary in words, by the label of each line."""
    differences = listed(summary["row_differences"])
    resumable = "yes" if summary["resumable"] else "no (no optimizer state)"
    lines = {
        "model": f"{summary['model']} ({summary['architecture']})",
        "row": summary["row"] + (f", but {differences}" if differences else ""),
    }
    for place, count in summary["attention_parameters"].items():
        lines[f"{place} attention"] = f"{summary['kinds'][place]}, {count:,} parameters"
    if unusable := summary["not_finite"]:
        lines["not finite (NaN)"] = f"{len(unusable)} weights, such as {unusable[0]}"
    return lines | {
        "options": listed(summary["options"]) or "defaults",
        "all parameters": f"{summary['parameters']:,} ({', '.join(summary['dtypes'])})",
        "training updates": f"{summary['updates']:,}",
        "training can resume": resumable,
        "averaged from": ", ".join(summary["averaged_from"]) or "nothing",
        "made by": _steps(summary["made_by"]),
        "versions": listed(summary["versions"]) or "not stored",
    }


def _steps(history: dict[str, Any] | None) -> str:
    """List our commands that made the checkpoint, and from what, the last command first."""
    steps = []
    while history:
        source = history["source"]
        kinds = ", ".join(dict.fromkeys(source["attention"].values()))
        steps.append(f"{history['made_by']} from {source['name']} ({kinds})")
        history = history["before"]
    unmarked = f"training, or a tool that leaves no {checkpoint.PROVENANCE!r} mark"
    return ", that by ".join(steps) or unmarked
