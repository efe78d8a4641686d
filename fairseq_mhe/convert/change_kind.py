"""``fairseq-mhe convert``: a smaller kind of attention that starts from a trained model."""

import argparse
import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from torch import nn

from fairseq_mhe.attention import Attention
from fairseq_mhe.checkpoints.checkpoint import open_source, save_model
from fairseq_mhe.common.errors import UserError
from fairseq_mhe.common.quiet import quiet_fairseq
from fairseq_mhe.common.tables import align
from fairseq_mhe.convert.cp import tensorly_functions
from fairseq_mhe.convert.fit import CP_KINDS, FIT, MEAN, Fitted, Problem
from fairseq_mhe.convert.material import Material, open_material, tracked
from fairseq_mhe.convert.moments import Inputs
from fairseq_mhe.convert.options import add_files, add_measured, check_files
from fairseq_mhe.models.build import build_ours, sublayers
from fairseq_mhe.models.families import fine_tuning_line
from fairseq_mhe.models.options import size_options

#: Least squares, mean of the heads; and the better of them by validation loss.
METHODS = ("fit", "mean")
_BEST = "best"


def convert(
    output: Path,
    kind: str,
    material: Material,
    methods: Sequence[str] = METHODS,
    iterations: int = 100,
    weighted: bool = True,
    **own: Any,
) -> dict[str, Any]:
    """Write the material's source with attention of ``kind``, by whichever method is best.

    Args:
        output: the checkpoint to write.
        kind: of the new attention, at all places.
        material: what the models are compared on.
        methods: some of ``METHODS``.
        iterations: most rounds of least squares.
        weighted: errors count as they do on the material, else all alike.
        own: options of the kind, by fairseq-train's names.

    Returns:
        A report of JSON values: how near each method comes, the best, and the model's options.

    Raises:
        UserError: the options do not fit together, tensorly is missing, or ``output`` cannot be
            written.
    """
    if "fit" in methods and kind in CP_KINDS:
        tensorly_functions()
    source = material.source
    bias = any(module.written_out().biased for _, _, module in sublayers(source.model))
    options = source.other_kind(kind, bias, **own)
    models: dict[str, nn.Module] = {}
    tried: dict[str, Any] = {}
    for method in methods:
        inputs = material.inputs() if method == "fit" and weighted else {}
        model, layers = _converted(material, options, method, inputs, iterations)
        logits = asdict(material.difference(model))
        tried[method] = {"loss": material.loss(model), "logits": logits, "layers": layers}
        models[method] = model
    best = min(tried, key=lambda method: tried[method]["loss"] or 0.0)
    how = {"kind": kind, "method": best, "weighted_by": material.name if weighted else None}
    made = {"made_by": "convert", **how, "loss": tried[best]["loss"]}
    save_model(source, options, models[best].state_dict(), output, made)
    before = {"loss_before": material.loss(source.model)}
    return {**how, **before, "tried": tried, "options": options}


def _converted(
    material: Material,
    options: Mapping[str, Any],
    method: str,
    inputs: Mapping[str, Inputs],
    iterations: int,
) -> tuple[nn.Module, list[dict[str, Any]]]:
    """The source's model with new attention, and a report of each sublayer."""
    source = material.source
    model = build_ours(options, source.task())
    old = {name: module for name, _, module in sublayers(source.model)}
    state = {
        name: value
        for name, value in source.model.state_dict().items()
        if not name.startswith(tuple(f"{sublayer}." for sublayer in old))
    }
    reports = []
    for name, _, new in tracked([*sublayers(model)], f"attention sublayers, {method}"):
        start = time.perf_counter()
        if method == "fit":
            known = inputs.get(name) or Inputs.unknown(old[name])
            fitted = FIT[new.kind](Problem(new, old[name].written_out(), known, iterations))
        else:
            fitted = _mean(name, old[name], new)
        state |= {f"{name}.{key}": value.float() for key, value in fitted.parameters.items()}
        report = {"name": name, "error": fitted.error, "iterations": fitted.iterations}
        reports.append({**report, "seconds": time.perf_counter() - start})
    model.load_state_dict(state)
    return model.eval(), reports


def _mean(name: str, old: Attention, new: Attention) -> Fitted:
    try:
        return Fitted(MEAN[new.kind](new, old.written_out()))
    except ValueError as error:
        raise UserError(f"{name}: {error}; use --method fit") from None


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of ``fairseq-mhe convert``."""
    add_files(parser, "trained checkpoint, stock or ours", "checkpoint to fine-tune")
    add = parser.add_argument
    help_ = f"kind of attention: {', '.join(MEAN)} (collaborative: to-collaborative)"
    add("--to", required=True, choices=tuple(MEAN), metavar="KIND", help=help_)
    for flag, (option, kinds) in size_options().items():
        if set(kinds) & set(MEAN):
            name, help_ = option.name.replace("_", "-"), f"{', '.join(kinds)}: {option.help}"
            add(f"--{name}", dest=flag, type=int, metavar="N", help=help_)
    add(
        "--method",
        choices=(_BEST, *METHODS),
        help="fit: least squares; mean: mean of the heads, as in the GQA paper; best: whichever "
        "has the lower loss (default: best with --data, else fit)",
    )
    add_measured(parser)


def run(args: argparse.Namespace) -> None:
    """Convert by one method or all, keep the best, and print how far each is from the source."""
    method = args.method or (_BEST if args.data else "fit")
    if method == _BEST and not args.data:
        raise UserError("--method best compares losses and needs --data; or choose fit or mean")
    methods = METHODS if method == _BEST else (method,)
    own = {flag: getattr(args, flag, None) for flag in size_options()}
    convert_and_report(args, args.to, methods=methods, **own)


def convert_and_report(args: argparse.Namespace, kind: str, **how: Any) -> None:
    """Convert what a command names, ``how`` as in `convert`, and print the report."""
    check_files(args)
    with quiet_fairseq():
        source = open_source(args.input)
        material = open_material(source, args.data, args.sentences)
        report = convert(args.output, kind, material, **how)
    if args.json:
        print(json.dumps(report, indent=2))
        return
    print(_tables(report, material.describe()))
    print(f"{args.output}: {kind} by {report['method']}, from {source.attention_words}")
    print(fine_tuning_line(args.output, report["options"]))


def _tables(report: Mapping[str, Any], compared: str) -> str:
    """All methods, and the sublayers by the best, of which errors were measured."""
    title = f"against the source, before any fine-tuning ({compared})"
    if report["loss_before"] is not None:
        title += f"; its own loss: {report['loss_before']:.4f}"
    rows = []
    for method, tried in report["tried"].items():
        loss = "not measured" if tried["loss"] is None else f"{tried['loss']:.4f}"
        kept = "kept" if method == report["method"] else ""
        rows.append((method, loss, f"{tried['logits']['largest']:.2g}", kept))
    columns = ("method", "loss (nats/token)", "largest difference of a logit", "")
    text = f"{title}\n\n{align(columns, rows)}\n"
    rows = []
    for layer in report["tried"][report["method"]]["layers"]:
        if layer["error"] is not None:
            error, seconds = f"{layer['error']:.2e}", f"{layer['seconds']:.1f}"
            rows.append((layer["name"], error, str(layer["iterations"]), seconds))
    if rows:
        columns = ("sublayer", "error of the scores", "rounds of least squares", "seconds")
        text += f"\n{align(columns, rows)}\n"
    return text
