"""``fairseq-mhe convert``: a smaller kind of attention that starts from a trained model."""

import argparse
import json
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

from torch import nn

from fairseq_mhe.attention import Attention
from fairseq_mhe.checkpoints.checkpoint import open_source, save_ours
from fairseq_mhe.common.errors import UserError
from fairseq_mhe.common.quiet import quiet_fairseq
from fairseq_mhe.common.tables import align
from fairseq_mhe.convert.cp import tensorly_functions
from fairseq_mhe.convert.difference import LogitDifference
from fairseq_mhe.convert.fit import CP_KINDS, FIT, MEAN, Fitted, HeadsToFit
from fairseq_mhe.convert.layerwise import Advance, LayerReport, convert_model, layers_folder
from fairseq_mhe.convert.moments import Inputs
from fairseq_mhe.convert.options import add_data, add_files, add_json, check_files
from fairseq_mhe.convert.sentences import Material, open_material
from fairseq_mhe.models.build import sublayers
from fairseq_mhe.models.rows import fine_tuning_line

#: Least squares, mean of the heads; and the better of them by validation loss.
METHODS = ("fit", "mean")
_BEST = "best"


@dataclass(frozen=True)
class Candidate:
    """A model that a method made: its sublayers, its logits, and with data nats per token."""

    method: str
    model: nn.Module
    layers: list[LayerReport]
    logits: LogitDifference
    loss: float | None


@dataclass(frozen=True)
class Conversion:
    """What was tried (the best first), the new options, and with data the source's own loss."""

    material: Material
    candidates: list[Candidate]
    options: dict[str, Any]
    loss_before: float | None

    @property
    def best(self) -> Candidate:
        """The one with the lowest loss."""
        return self.candidates[0]

    def report(self) -> dict[str, Any]:
        """As JSON values."""
        tried = {c.method: {"loss": c.loss, "logits": asdict(c.logits)} for c in self.candidates}
        return {"method": self.best.method, "loss_before": self.loss_before, "tried": tried}

    def save(self, output: Path, made: Mapping[str, Any]) -> None:
        """Write the best to ``output``, with how it was ``made``.

        Raises:
            UserError: the file cannot be written.
        """
        parameters = self.best.model.state_dict()
        save_ours(self.material.source, self.options, parameters, output, made)
        shutil.rmtree(layers_folder(output), ignore_errors=True)


def conversion(
    output: Path,
    kind: str,
    material: Material,
    methods: Sequence[str],
    iterations: int = 100,
    weighted: bool = True,
    **own: Any,
) -> Conversion:
    """The material's source with attention of ``kind`` and its ``own`` options, by each method.

    Args:
        output: where it will be saved; finished sublayers lie beside it until then.
        kind: of the new attention, at all places.
        material: what the models are judged on.
        methods: some of ``METHODS``.
        iterations: most rounds of least squares.
        weighted: errors count as they do on the material, else all alike.

    Raises:
        UserError: the options do not fit together, tensorly is missing, or the folder cannot be
            written.
    """
    if "fit" in methods and kind in CP_KINDS:
        tensorly_functions()
    source = material.source
    bias = any(module.written_out().biased for _, _, module in sublayers(source.model))
    options = source.other_kind(kind, bias, **own)

    def candidate(method: str) -> Candidate:
        inputs = material.inputs() if method == "fit" and weighted else {}
        convert = partial(_converted, method, inputs, iterations)
        settings = {
            "method": method,
            "iterations": iterations,
            "weighted_by": material.digest if inputs else None,
            "options": options,
        }
        model, layers = convert_model(
            source, options, convert, layers_folder(output) / method, settings
        )
        return Candidate(method, model, layers, material.difference(model), material.loss(model))

    made = sorted(map(candidate, methods), key=lambda candidate: candidate.loss or 0.0)
    return Conversion(material, made, options, material.loss(source.model))


def _converted(
    method: str,
    inputs: Mapping[str, Inputs],
    iterations: int,
    name: str,
    old: Attention,
    new: Attention,
    advance: Advance,
) -> Fitted:
    """The parameters of the sublayer ``new`` that takes the place of ``old``, by a method."""
    heads = old.written_out()
    if method == "fit":
        known = inputs.get(name) or Inputs.unknown(old)
        return FIT[new.kind](new, HeadsToFit(heads, known, advance, iterations))
    try:
        return Fitted(MEAN[new.kind](new, heads))
    except ValueError as error:
        raise UserError(f"{name}: {error}; use --method fit") from None


def convert_kind(
    output: Path, kind: str, material: Material, methods: Sequence[str], kv_heads: int | None = None
) -> Conversion:
    """Write the material's source with attention of ``kind``, by whichever method is best.

    Raises:
        UserError: as `conversion` and `Conversion.save`.
    """
    found = conversion(output, kind, material, methods, attention_kv_heads=kv_heads)
    how = {"made_by": "convert", "kind": kind, "method": found.best.method}
    found.save(output, {**how, "weighted_by": material.name, "loss": found.best.loss})
    return found


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of ``fairseq-mhe convert``."""
    add_files(parser, "trained checkpoint, stock or ours", "checkpoint to fine-tune")
    kinds = ", ".join(MEAN)
    parser.add_argument("--to", required=True, metavar="KIND", help=f"kind of attention: {kinds}")
    told = "gqa: key/value heads (default: 2, or 1 where the heads are odd in number)"
    parser.add_argument("--kv-heads", type=int, metavar="G", help=told)
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
        found = convert_kind(args.output, args.to, material, methods, args.kv_heads)
    if args.json:
        print(json.dumps({"kind": args.to, **found.report(), "options": found.options}, indent=2))
        return
    print(_table(found, material))
    print(f"{args.output}: {args.to} by {found.best.method}, from {source.attention_words}")
    print(fine_tuning_line(args.output, found.options))


def _methods(args: argparse.Namespace) -> tuple[str, ...]:
    """The methods to try, after a look at the options."""
    if args.to not in MEAN:
        kinds = ", ".join(MEAN)
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
        kept = "kept" if tried is found.best else ""
        rows.append((tried.method, loss, f"{tried.logits.largest:.2f}", kept))
    columns = ("method", "loss (nats/token)", "largest difference of a logit", "")
    return f"{title}\n\n{align(columns, rows, 'markdown')}\n"
