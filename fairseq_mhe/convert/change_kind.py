"""``fairseq-mhe convert``: a smaller kind of attention that starts from a trained model."""

from __future__ import annotations

import argparse
import json
import shutil
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from torch import nn

from fairseq_mhe.attention import Attention, kind_class, kinds_from_heads
from fairseq_mhe.attention.cp import tensorly_functions
from fairseq_mhe.attention.fitting import Fitted, Inputs, Trained
from fairseq_mhe.checkpoints.checkpoint import Source, open_source, save_ours
from fairseq_mhe.common.errors import UserError
from fairseq_mhe.common.tables import align
from fairseq_mhe.convert.difference import LogitDifference, quiet_fairseq
from fairseq_mhe.convert.layerwise import convert_model, layers_folder
from fairseq_mhe.convert.material import Material, open_material
from fairseq_mhe.convert.options import add_data, add_files, add_json, check_files
from fairseq_mhe.models.build import sublayers
from fairseq_mhe.models.rows import fine_tuning_line

#: Least squares, mean of the heads; and the better of them by validation loss.
METHODS = ("fit", "mean")
_BEST = "best"


@dataclass(frozen=True)
class Candidate:
    """A model that a method made: how far its logits are, and with data nats per token."""

    method: str
    model: nn.Module
    logits: LogitDifference
    loss: float | None


@dataclass(frozen=True)
class Conversion:
    """What was tried (the best first), the new options, and with data the source's own loss."""

    candidates: list[Candidate]
    options: dict[str, Any]
    loss_before: float | None

    def report(self) -> dict[str, Any]:
        """As JSON values."""
        tried = {c.method: {"loss": c.loss, "logits": asdict(c.logits)} for c in self.candidates}
        method = self.candidates[0].method
        return {"method": method, "loss_before": self.loss_before, "tried": tried}


def convert_kind(
    source: Source,
    output: Path,
    kind: str,
    material: Material,
    methods: Sequence[str],
    kv_heads: int | None = None,
) -> Conversion:
    """Write ``source`` with attention of ``kind``, by whichever method has the lowest loss.

    Raises:
        UserError: the options do not fit together, tensorly is missing, or ``output`` cannot be
            written.
    """
    if "fit" in methods and kind_class(kind).fits_by_tensorly:
        tensorly_functions()
    bias = any(module.written_out().biased for _, _, module in sublayers(source.model))
    options = source.other_kind(kind, bias, attention_kv_heads=kv_heads)
    folder = layers_folder(output)
    made = [_candidate(method, options, material, folder / method) for method in methods]
    made.sort(key=lambda candidate: candidate.loss or 0.0)
    best = made[0]
    how = {"made_by": "convert", "kind": kind, "method": best.method}
    found = {**how, "weighted_by": material.name, "loss": best.loss}
    save_ours(source, options, best.model.state_dict(), output, found)
    shutil.rmtree(folder, ignore_errors=True)
    return Conversion(made, options, material.loss(source.model))


def _candidate(method: str, options: dict[str, Any], material: Material, folder: Path) -> Candidate:
    """The model that ``method`` makes of the material's source."""
    inputs = material.inputs() if method == "fit" else {}

    def convert(
        name: str, module: Attention, new: Attention, advance: Callable[[], None]
    ) -> Fitted:
        heads = module.written_out()
        if method == "fit":
            known = inputs.get(name) or Inputs.unknown(module)
            return new.fitted(Trained(heads, known, advance))
        try:
            return Fitted(new.pooled(heads))
        except ValueError as error:
            raise UserError(f"{name}: {error}; use --method fit") from None

    settings = {
        "method": method,
        "weighted_by": material.name,
        "sentences": material.sentences,
        "options": options,
    }
    model, _ = convert_model(material.source, options, convert, folder, settings)
    return Candidate(method, model, material.difference(model), material.loss(model))


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of ``fairseq-mhe convert``."""
    add_files(parser, "trained checkpoint, stock or ours", "checkpoint to fine-tune")
    kinds = ", ".join(kinds_from_heads())
    parser.add_argument("--to", required=True, metavar="KIND", help=f"kind of attention: {kinds}")
    parser.add_argument(
        "--kv-heads", type=int, metavar="G", help="gqa: key/value heads (default: 2)"
    )
    parser.add_argument(
        "--method",
        choices=(_BEST, *METHODS),
        help="fit: least squares; mean: mean of the heads, as in the GQA paper; best: whichever "
        "has the lower loss (default: best with --data, else fit)",
    )
    add_data(
        parser,
        "data folder: errors count as they do on its training sentences, and the loss is measured",
        sentences=1000,
    )
    add_json(parser)


def run(args: argparse.Namespace) -> None:
    """Convert by one method or all, keep the best, and say how far each is from the source."""
    check_files(args)
    methods = _methods(args)
    with quiet_fairseq():
        source = open_source(args.input)
        material = open_material(source, args.data, args.sentences)
        found = convert_kind(source, args.output, args.to, material, methods, args.kv_heads)
    if args.json:
        print(json.dumps({"kind": args.to, **found.report(), "options": found.options}, indent=2))
        return
    print(_table(found, material))
    method = found.candidates[0].method
    print(f"{args.output}: {args.to} by {method}, from {source.attention_words}")
    print(fine_tuning_line(args.output, found.options))


def _methods(args: argparse.Namespace) -> tuple[str, ...]:
    """The methods to try, after a look at the options."""
    if args.to not in kinds_from_heads():
        kinds = ", ".join(kinds_from_heads())
        raise UserError(
            f"cannot convert to {args.to!r}; choose one of: {kinds} "
            "(to-collaborative makes collaborative)"
        )
    if args.kv_heads is not None and args.to != "gqa":
        raise UserError(f"--kv-heads has no effect on {args.to}: leave it out")
    method = args.method or (_BEST if args.data else "fit")
    if method == _BEST and not args.data:
        raise UserError("--method best compares losses and needs --data; or choose fit or mean")
    return METHODS if method == _BEST else (method,)


def _table(found: Conversion, material: Material) -> str:
    title = f"against the source, before any fine-tuning ({material.describe()})"
    if found.loss_before is not None:
        title += f"; its own loss: {found.loss_before:.4f}"
    rows = []
    for tried in found.candidates:
        loss = "not measured" if tried.loss is None else f"{tried.loss:.4f}"
        kept = "kept" if tried is found.candidates[0] else ""
        rows.append((tried.method, loss, f"{tried.logits.largest:.2f}", kept))
    columns = ("method", "loss (nats/token)", "largest difference of a logit", "")
    return f"{title}\n\n{align(columns, rows, 'markdown')}\n"
