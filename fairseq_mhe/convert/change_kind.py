"""``fairseq-mhe convert``: a smaller kind of attention that starts from a trained model.

``fairseq-mhe to-collaborative`` is the same for collaborative attention of any width D: Cordonnier,
Loukas & Jaggi 2020, section 3.3 (arXiv 2006.16362). Exact for D = n d.
"""

import argparse
import json
import time
from pathlib import Path
from typing import Any

from fairseq_mhe.checkpoints.checkpoint import open_source, save_model
from fairseq_mhe.common.arguments import positive
from fairseq_mhe.common.quiet import quiet_fairseq
from fairseq_mhe.common.tables import align
from fairseq_mhe.convert.compare import Material, open_material, tracked
from fairseq_mhe.convert.fit import MEAN, METHODS, Problem
from fairseq_mhe.convert.moments import Inputs
from fairseq_mhe.convert.options import add_data, add_files, add_json, check_files
from fairseq_mhe.models.build import build_ours, sublayers
from fairseq_mhe.models.families import fine_tuning_line
from fairseq_mhe.models.options import size_options

#: Most rounds of least squares of ``to-collaborative``.
_ROUNDS = 200
Report = dict[str, Any]


def convert(
    output: Path,
    kind: str,
    material: Material,
    method: str = "fit",
    iterations: int = 100,
    weighted: bool = True,
    **own: Any,
) -> Report:
    """Write the material's source with attention of ``kind``.

    Args:
        output: the checkpoint to write.
        kind: of the new attention, at all places.
        material: what the models are compared on.
        method: one of ``METHODS``.
        iterations: most rounds of least squares.
        weighted: errors count as they do on the material, else all alike.
        own: options of the kind, by fairseq-train's names.

    Returns:
        A report of JSON values: how near the model comes, its sublayers, and its options.

    Raises:
        UserError: the options do not fit together, tensorly is missing, or ``output`` cannot be
            written.
    """
    source = material.source
    heads = {name: module.written_out() for name, _, module in sublayers(source.model)}
    bias = any(each.biased for each in heads.values())
    options = source.other_kind(kind, bias, **own)
    model = build_ours(options, source.task())
    inputs = material.inputs() if method == "fit" and weighted else {}
    replaced = tuple(f"{name}." for name in heads)
    weights = source.model.state_dict().items()
    state = {name: value for name, value in weights if not name.startswith(replaced)}
    layers = []
    for name, _, new in tracked([*sublayers(model)], f"attention sublayers, {method}"):
        start = time.perf_counter()
        known = inputs.get(name) or Inputs.unknown(new)
        problem = Problem(new, heads[name], known, iterations)
        fitted = METHODS[method][kind](problem)
        state |= {f"{name}.{key}": value.float() for key, value in fitted.items()}
        layer: Report = {"name": name, "seconds": time.perf_counter() - start}
        if problem.components:
            layer["error"] = problem.components.error
            layer["iterations"] = problem.components.iterations
        layers.append(layer)
    model.load_state_dict(state)
    model.eval()
    report: Report = {
        "kind": kind,
        "method": method,
        "weighted_by": str(material.data) if inputs else None,
        "loss": material.loss(model),
    }
    save_model(source, options, model.state_dict(), output, {"made_by": "convert", **report})
    return {
        **report,
        "loss_before": material.loss(source.model),
        "logits": material.difference(model)._asdict(),
        "layers": layers,
        "options": options,
    }


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_files(parser, "trained checkpoint, stock or ours", "checkpoint to fine-tune")
    add = parser.add_argument
    help_ = f"kind of attention: {', '.join(MEAN)} (collaborative: to-collaborative)"
    add("--to", required=True, choices=tuple(MEAN), metavar="KIND", help=help_)
    for flag, (option, kinds) in size_options().items():
        if set(kinds) & set(MEAN):
            name, help_ = option.name.replace("_", "-"), f"{', '.join(kinds)}: {option.help}"
            add(f"--{name}", dest=flag, type=int, metavar="N", help=help_)
    help_ = "fit: least squares; mean: mean of the heads, as in the GQA paper (default: fit)"
    add("--method", choices=METHODS, default="fit", help=help_)
    add_measured(parser)


def add_measured(parser: argparse.ArgumentParser) -> None:
    """The data that conversions are fitted to and judged on, and --json."""
    use = "data folder: its training sentences weigh the errors, and the loss is measured"
    add_data(parser, use, sentences=1000)
    add_json(parser)


def run(args: argparse.Namespace) -> None:
    """Convert, and print how far the model is from its source."""
    own = {flag: getattr(args, flag, None) for flag in size_options()}
    convert_and_report(args, args.to, method=args.method, **own)


def to_collaborative_arguments(parser: argparse.ArgumentParser) -> None:
    output = "the same model with collaborative attention"
    add_files(parser, "trained checkpoint, stock or ours", output)
    help_ = (
        "width of the shared queries and keys; nothing is lost at heads times their width"
    )
    parser.add_argument("--dim", type=positive, required=True, metavar="D", help=help_)
    add_measured(parser)


def to_collaborative(args: argparse.Namespace) -> None:
    """Decompose the scores of trained heads, and print how far the model is from its source."""
    how = {"iterations": _ROUNDS, "collaborative_dim": args.dim}
    convert_and_report(args, "collaborative", **how)


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
    print(f"{args.output}: {kind} by {report['method']}, from {source.attention_words}")
    apart = f"largest difference of a logit {report['logits']['largest']:.2g}"
    if report["loss"] is not None:
        apart += (
            f", loss {report['loss']:.4f} (source: {report['loss_before']:.4f}) nats/token"
        )
    print(f"before any fine-tuning, on {material.name}: {apart}")
    columns = ("sublayer", "error of the scores", "rounds of least squares", "seconds")
    rows = [
        (
            each["name"],
            f"{each['error']:.2e}",
            f"{each['iterations']}",
            f"{each['seconds']:.1f}",
        )
        for each in report["layers"]
        if "error" in each
    ]
    if rows:
        print(f"\n{align(columns, rows)}\n")
    print(fine_tuning_line(args.output, report["options"]))
