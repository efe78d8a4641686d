"""``fairseq-mhe convert``: give a trained model a smaller kind of attention, fitted to its own.

Collaborative attention of width D is exact for D = n d: Cordonnier, Loukas & Jaggi 2020,
section 3.3 (arXiv 2006.16362).
"""

import argparse
import shlex
from pathlib import Path
from typing import Any

from fairseq_mhe.attention.plain_heads import PlainHeads
from fairseq_mhe.checkpoints.checkpoint import open_source, save_model
from fairseq_mhe.common.arguments import as_words
from fairseq_mhe.common.errors import UserError
from fairseq_mhe.common.files import Json, atomic_path
from fairseq_mhe.common.progress import tracked
from fairseq_mhe.common.quiet import quiet_fairseq
from fairseq_mhe.common.tables import align
from fairseq_mhe.convert.compare import Material, add_data, open_material
from fairseq_mhe.convert.fit import FIT, ROUNDS, Problem
from fairseq_mhe.convert.fold import add_files, check_arguments, with_sublayers
from fairseq_mhe.models.build import build_ours
from fairseq_mhe.models.families import training_options
from fairseq_mhe.models.options import size_options, sublayers

#: Kinds that ``convert --to`` accepts.
TARGETS = tuple(FIT)
_SENTENCES = 1000
_USE_OF_DATA = "data folder: train weights the errors of the fit, valid measures the loss"


def convert(
    output: Path, kind: str, material: Material, iterations: int = ROUNDS, **sizes: Any
) -> Json:
    """Write the material's source with attention of ``kind`` at all places to ``output``.

    ``iterations``: most rounds of least squares; ``sizes``: the kind's options, by fairseq-train's
    names. Returns a report of JSON values: the model's options, how it differs from its source, and
    the error of each sublayer fitted by a CP decomposition. UserError if options do not fit.
    """
    if kind not in FIT:
        raise UserError(f"no fit to {kind} is known: choose one of {', '.join(FIT)}")
    source = material.source
    heads = {name: module.folded() for name, _, module in sublayers(source.model)}
    bias = any(map(_has_biases, heads.values()))
    options = source.options_of_kind(kind, bias, **sizes)
    try:
        model = build_ours(options, source.task())
    except RuntimeError as error:  # torch's, if it has too little memory
        raise UserError(
            f"cannot build a model of {kind}: {error}; give smaller sizes"
        ) from None
    inputs = material.inputs()
    fitted, layers = {}, []
    new = list(sublayers(model))
    for name, _, attention in tracked(new, "fitting attention sublayers", len(new)):
        problem = Problem(attention, heads[name], inputs[name], iterations)
        fitted[name] = FIT[kind](problem)
        if (cp := problem.components) is not None:
            layers.append({"name": name, "error": cp.error, "iterations": cp.iterations})
    model.load_state_dict(with_sublayers(source.model, fitted))
    model.eval()
    weighted_by = str(material.data) if material.data else None
    report = {"kind": kind, "weighted_by": weighted_by, "loss": material.loss(model)}
    facts = {"made_by": "convert", **report}
    with atomic_path(output) as temporary:
        save_model(source, options, model.state_dict(), temporary, facts)
    return {
        **report,
        "loss_before": material.loss(source.model),
        "logits": material.difference(model)._asdict(),
        "layers": layers,
        "options": options,
    }


def _has_biases(heads: PlainHeads) -> bool:
    """Return whether any bias differs from zero."""
    biases = heads.query_bias, heads.value_bias, heads.output_bias
    return any(bool(bias.any()) for bias in biases)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_files(parser, "run folder, or any fairseq checkpoint", "checkpoint to write")
    add = parser.add_argument
    help_ = f"new kind of attention: {', '.join(TARGETS)}"
    add("--to", required=True, choices=TARGETS, metavar="KIND", help=help_)
    for dest, (option, kinds) in size_options().items():
        if set(kinds) & set(TARGETS):
            flag = f"--{dest.replace('_', '-')}"
            help_ = f"{', '.join(kinds)}: {option.help}"
            add(flag, type=int, metavar="N", help=help_)
    add_data(parser, _USE_OF_DATA, _SENTENCES)


def run(args: argparse.Namespace) -> None:
    """Convert the checkpoint, and print how the new model differs from it."""
    sizes: dict[str, Any] = {flag: getattr(args, flag, None) for flag in size_options()}
    kind = args.to
    check_arguments(args)
    with quiet_fairseq():
        source = open_source(args.input)
        material = open_material(source, args.data, args.sentences or _SENTENCES)
        report = convert(args.output, kind, material, **sizes)
    print(f"{args.output}: {kind} from {source.attention_summary}, by least squares")
    difference = f"largest difference of a logit {report['logits']['largest']:.2g}"
    if report["loss"] is not None:
        loss, before = report["loss"], report["loss_before"]
        difference += f", loss {loss:.4f} (source: {before:.4f}) nats/token"
    print(f"before any fine-tuning, on {material.name}: {difference}")
    if layers := report["layers"]:
        columns = "sublayer", "error of the scores", "rounds of least squares"
        rows = []
        for layer in layers:
            rows.append(
                (layer["name"], f"{layer['error']:.2e}", str(layer["iterations"]))
            )
        print(f"\n{align(columns, rows)}\n")
    words = as_words(training_options(report["options"]))
    words += ["--finetune-from-model", str(args.output)]
    flags = shlex.join(words)
    print(f"train further: fairseq-train DATA-BIN --user-dir fairseq_mhe {flags} ...")
