"""``fairseq-mhe convert``: a smaller kind of attention that starts from a trained model instead of from scratch."""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table
from torch import nn

from fairseq_mhe.attention import Attention, kinds_from_heads, variant
from fairseq_mhe.attention.cp import tensorly_functions
from fairseq_mhe.attention.fitting import Fitted, Inputs
from fairseq_mhe.checkpoints.checkpoint import Source, open_source, refuse_same_file, save_ours
from fairseq_mhe.common.errors import UserError
from fairseq_mhe.convert.compare import LogitDifference, quiet_fairseq
from fairseq_mhe.convert.layerwise import LayerStore, convert_model
from fairseq_mhe.convert.measured import Material, add_data_arguments, open_material
from fairseq_mhe.models.build import sublayers
from fairseq_mhe.models.rows import fine_tuning_line

#: Least squares, mean of the heads; and the better of them by validation loss.
METHODS = ("fit", "mean")
BEST = "best"


@dataclass(frozen=True)
class Candidate:
    """A model that a method made: its logits' difference from the source's and, with data, nats per token."""

    method: str
    model: nn.Module
    logits: LogitDifference
    loss: float | None


@dataclass(frozen=True)
class Conversion:
    """What was tried (the best first), the new model's options, and the source's own loss (with data)."""

    candidates: list[Candidate]
    options: dict[str, Any]
    loss_before: float | None

    def report(self) -> dict[str, Any]:
        """As JSON values."""
        tried = {c.method: {"loss": c.loss, "logits": asdict(c.logits)} for c in self.candidates}
        return {
            "method": self.candidates[0].method,
            "loss_before": self.loss_before,
            "tried": tried,
        }


def convert_kind(
    source: Source,
    output: Path,
    kind: str,
    material: Material,
    methods: Sequence[str],
    console: Console,
    kv_heads: int | None = None,
) -> Conversion:
    """Write ``source`` with attention of ``kind`` to ``output``, by whichever of ``methods`` has the lowest loss.

    Raises:
        UserError: the options do not fit together, tensorly is missing, or ``output`` cannot be
        written.
    """
    if "fit" in methods and variant(kind).fits_by_tensorly:
        tensorly_functions()
    bias = any(module.written_out().biased for _, _, module in sublayers(source.model))
    options = source.other_kind(kind, bias, attention_kv_heads=kv_heads)
    stores = [_store(method, options, material, output) for method in methods]
    made = [
        _candidate(method, source, options, material, store, console)
        for method, store in zip(methods, stores, strict=True)
    ]
    made.sort(key=lambda candidate: candidate.loss or 0.0)
    found = {
        "kind": kind,
        "method": made[0].method,
        "weighted_by": material.name,
        "loss": made[0].loss,
    }
    save_ours(source, options, made[0].model.state_dict(), output, {"made_by": "convert", **found})
    for store in stores:
        store.clear()
    return Conversion(made, options, material.loss(source.model))


def _store(method: str, options: dict[str, Any], material: Material, output: Path) -> LayerStore:
    settings = {
        "method": method,
        "weighted_by": material.name,
        "sentences": sum(len(batch["id"]) for batch in material.train),
        "options": options,
    }
    return LayerStore(output.with_name(f".{output.name}.layers"), settings)


def _candidate(
    method: str,
    source: Source,
    options: dict[str, Any],
    material: Material,
    store: LayerStore,
    console: Console,
) -> Candidate:
    """The model that ``method`` makes of ``source``."""
    inputs = material.inputs(console) if method == "fit" else {}

    def convert(
        name: str, module: Attention, new: Attention, advance: Callable[[], None]
    ) -> Fitted:
        heads = module.written_out()
        if method == "fit":
            return new.fitted(heads, inputs.get(name) or Inputs.unknown(module), advance)
        try:
            return Fitted(new.pooled(heads))
        except ValueError as error:
            raise UserError(f"{name}: {error}; use --method fit") from None

    model, _ = convert_model(source, options, convert, store, console)
    return Candidate(method, model, material.difference(model), material.loss(model))


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of ``fairseq-mhe convert``."""
    parser.add_argument("input", type=Path, metavar="IN", help="trained checkpoint, stock or ours")
    parser.add_argument("output", type=Path, metavar="OUT", help="checkpoint to fine-tune")
    parser.add_argument(
        "--to",
        required=True,
        metavar="KIND",
        help=f"kind of attention: {', '.join(kinds_from_heads())}",
    )
    parser.add_argument(
        "--kv-heads", type=int, metavar="G", help="gqa: key/value heads (default: 2)"
    )
    parser.add_argument(
        "--method",
        choices=(BEST, *METHODS),
        help="fit: least squares; mean: mean of the heads, as in the GQA paper; best: whichever has the lower loss "
        "(default: best with --data, else fit)",
    )
    add_data_arguments(parser)
    parser.add_argument(
        "--json", action="store_true", help="print the report as JSON, for programs"
    )


def run(args: argparse.Namespace) -> None:
    """Convert by one method or all, keep the best, and say how far each is from the source."""
    refuse_same_file(args.input, args.output)
    methods = _methods(args)
    with quiet_fairseq():
        source = open_source(args.input)
        material = open_material(source, args.data, args.sentences)
        console = Console(stderr=True)
        found = convert_kind(
            source, args.output, args.to, material, methods, console, args.kv_heads
        )
    if args.json:
        print(json.dumps({"kind": args.to, **found.report(), "options": found.options}, indent=2))
        return
    out = Console()
    out.print(_table(found, material))
    words = (
        f"{args.output}: {args.to} by {found.candidates[0].method}, from {source.attention_words}"
    )
    out.print(words, highlight=False, soft_wrap=True)
    out.print(fine_tuning_line(args.output, found.options), highlight=False, soft_wrap=True)


def _methods(args: argparse.Namespace) -> tuple[str, ...]:
    """The methods to try, after a look at the options."""
    if args.to not in kinds_from_heads():
        raise UserError(
            f"cannot convert to {args.to!r}; choose one of: {', '.join(kinds_from_heads())} "
            "(to-collaborative makes collaborative)"
        )
    if args.kv_heads is not None and args.to != "gqa":
        raise UserError(f"--kv-heads has no effect on {args.to}: leave it out")
    method = args.method or (BEST if args.data else "fit")
    if method == BEST and not args.data:
        raise UserError("--method best compares losses and needs --data; or choose fit or mean")
    return METHODS if method == BEST else (method,)


def _table(found: Conversion, material: Material) -> Table:
    title = f"against the source, before any fine-tuning ({material.describe()})"
    before = found.loss_before
    table = Table(title=title if before is None else f"{title}; its own loss: {before:.4f}")
    for column in ("method", "loss (nats/token)", "largest difference of a logit", ""):
        table.add_column(column, justify="right" if column != "method" else "left")
    for c in found.candidates:
        loss = "not measured" if c.loss is None else f"{c.loss:.4f}"
        table.add_row(
            c.method, loss, f"{c.logits.largest:.2f}", "kept" if c is found.candidates[0] else ""
        )
    return table
