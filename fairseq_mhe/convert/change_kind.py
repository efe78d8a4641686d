"""``fairseq-mhe convert``: a smaller kind of attention that starts from a trained model."""

import argparse
import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

from torch import nn

from fairseq_mhe.attention import Attention
from fairseq_mhe.checkpoints.checkpoint import open_source, save_model
from fairseq_mhe.common.errors import UserError
from fairseq_mhe.common.progress import Board
from fairseq_mhe.common.quiet import quiet_fairseq
from fairseq_mhe.common.tables import align
from fairseq_mhe.convert.cp import tensorly_functions
from fairseq_mhe.convert.difference import LogitDifference
from fairseq_mhe.convert.fit import CP_KINDS, FIT, MEAN, Fitted, HeadsToFit
from fairseq_mhe.convert.material import Material, open_material
from fairseq_mhe.convert.moments import Inputs
from fairseq_mhe.convert.options import add_data, add_files, add_json, check_files
from fairseq_mhe.models.build import build_ours, sublayers
from fairseq_mhe.models.rows import fine_tuning_line

#: Least squares, mean of the heads; and the better of them by validation loss.
METHODS = ("fit", "mean")
_BEST = "best"


@dataclass(frozen=True)
class LayerReport:
    """How the conversion of one sublayer went, in ``seconds``; ``error``: of the scores."""

    name: str
    error: float | None
    iterations: int
    seconds: float


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

    def save(self, output: Path, provenance: Mapping[str, Any]) -> None:
        """Write the best to ``output``, with its ``provenance``.

        Raises:
            UserError: the file cannot be written.
        """
        parameters = self.best.model.state_dict()
        save_model(self.material.source, self.options, parameters, output, provenance)


def conversion(
    kind: str,
    material: Material,
    methods: Sequence[str],
    iterations: int = 100,
    weighted: bool = True,
    **own: Any,
) -> Conversion:
    """The material's source with attention of ``kind`` and its ``own`` options, by each method.

    Args:
        kind: of the new attention, at all places.
        material: what the models are compared on.
        methods: some of ``METHODS``.
        iterations: most rounds of least squares.
        weighted: errors count as they do on the material, else all alike.

    Raises:
        UserError: the options do not fit together, or tensorly is missing.
    """
    if "fit" in methods and kind in CP_KINDS:
        tensorly_functions()
    source = material.source
    bias = any(module.written_out().biased for _, _, module in sublayers(source.model))
    options = source.other_kind(kind, bias, **own)
    candidates = []
    for method in methods:
        inputs = material.inputs() if method == "fit" and weighted else {}
        model, layers = _converted(material, options, method, inputs, iterations)
        difference = material.difference(model)
        candidates.append(Candidate(method, model, layers, difference, material.loss(model)))
    candidates.sort(key=lambda candidate: candidate.loss or 0.0)
    return Conversion(material, candidates, options, material.loss(source.model))


def _converted(
    material: Material,
    options: Mapping[str, Any],
    method: str,
    inputs: Mapping[str, Inputs],
    iterations: int,
) -> tuple[nn.Module, list[LayerReport]]:
    """The source's model with new attention; all but that stays as it is."""
    source = material.source
    model = build_ours(options, source.task())
    old = {name: module for name, _, module in sublayers(source.model)}
    state = {
        name: value
        for name, value in source.model.state_dict().items()
        if not name.startswith(tuple(f"{sublayer}." for sublayer in old))
    }
    reports: list[LayerReport] = []
    bar = "attention sublayers"
    with Board(transient=True) as board:
        board.add(bar, len(old))
        for name, _, new in sublayers(model):
            start = time.perf_counter()
            # A sign of life: rounds of least squares may take minutes.
            advance = partial(board.update, bar, len(reports), name)
            if method == "fit":
                known = inputs.get(name) or Inputs.unknown(old[name])
                trained = HeadsToFit(old[name].written_out(), known, advance, iterations)
                fitted = FIT[new.kind](new, trained)
            else:
                fitted = _mean(name, old[name], new)
            state |= {f"{name}.{key}": value.float() for key, value in fitted.parameters.items()}
            seconds = time.perf_counter() - start
            reports.append(LayerReport(name, fitted.error, fitted.iterations, seconds))
            board.advance(bar)
    model.load_state_dict(state)
    return model.eval(), reports


def _mean(name: str, old: Attention, new: Attention) -> Fitted:
    try:
        return Fitted(MEAN[new.kind](new, old.written_out()))
    except ValueError as error:
        raise UserError(f"{name}: {error}; use --method fit") from None


def convert_kind(
    output: Path, kind: str, material: Material, methods: Sequence[str], kv_heads: int | None = None
) -> Conversion:
    """Write the material's source with attention of ``kind``, by whichever method is best.

    Raises:
        UserError: as `conversion` and `Conversion.save`.
    """
    result = conversion(kind, material, methods, attention_kv_heads=kv_heads)
    how = {"made_by": "convert", "kind": kind, "method": result.best.method}
    result.save(output, {**how, "weighted_by": material.name, "loss": result.best.loss})
    return result


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of ``fairseq-mhe convert``."""
    add_files(parser, "trained checkpoint, stock or ours", "checkpoint to fine-tune")
    kinds = ", ".join(MEAN)
    parser.add_argument("--to", required=True, metavar="KIND", help=f"kind of attention: {kinds}")
    help_ = "gqa: key/value heads (default: 2, or 1 where the heads are odd in number)"
    parser.add_argument("--kv-heads", type=int, metavar="G", help=help_)
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
    """Convert by one method or all, keep the best, and print how far each is from the source."""
    check_files(args)
    methods = _methods(args)
    with quiet_fairseq():
        source = open_source(args.input)
        material = open_material(source, args.data, args.sentences)
        result = convert_kind(args.output, args.to, material, methods, args.kv_heads)
    if args.json:
        report = {"kind": args.to, **result.report(), "options": result.options}
        print(json.dumps(report, indent=2))
        return
    print(_table(result))
    print(f"{args.output}: {args.to} by {result.best.method}, from {source.attention_words}")
    print(fine_tuning_line(args.output, result.options))


def _methods(args: argparse.Namespace) -> tuple[str, ...]:
    """The methods to try.

    Raises:
        UserError: options that do not fit together.
    """
    if args.to not in MEAN:
        raise UserError(
            f"cannot convert to {args.to!r}; choose one of: {', '.join(MEAN)} "
            "(to-collaborative makes collaborative)"
        )
    if args.kv_heads is not None and args.to != "gqa":
        raise UserError(f"--kv-heads has no effect on {args.to}: leave it out")
    method = args.method or (_BEST if args.data else "fit")
    if method == _BEST and not args.data:
        raise UserError("--method best compares losses and needs --data; or choose fit or mean")
    return METHODS if method == _BEST else (method,)


def _table(result: Conversion) -> str:
    title = f"against the source, before any fine-tuning ({result.material.describe()})"
    if result.loss_before is not None:
        title += f"; its own loss: {result.loss_before:.4f}"
    rows = []
    for tried in result.candidates:
        loss = "not measured" if tried.loss is None else f"{tried.loss:.4f}"
        kept = "kept" if tried is result.best else ""
        rows.append((tried.method, loss, f"{tried.logits.largest:.2f}", kept))
    columns = ("method", "loss (nats/token)", "largest difference of a logit", "")
    return f"{title}\n\n{align(columns, rows)}\n"
