"""``fairseq-mhe to-collaborative``: any checkpoint with collaborative attention of any width D.

Cordonnier, Loukas & Jaggi 2020, section 3.3 (arXiv 2006.16362): the heads' score matrices W_Q^i
W_K^i^T, stacked, are decomposed into D shared components (CP, PARAFAC) mixed by each head; biases
go into the content term. Exact for D = n d.
"""

import argparse
import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

from fairseq_mhe.checkpoints.checkpoint import open_source
from fairseq_mhe.common.arguments import positive
from fairseq_mhe.common.errors import UserError
from fairseq_mhe.common.quiet import quiet_fairseq
from fairseq_mhe.common.tables import align
from fairseq_mhe.convert.change_kind import Conversion, conversion
from fairseq_mhe.convert.material import Material, open_material
from fairseq_mhe.convert.options import add_data, add_files, add_json, check_files
from fairseq_mhe.models.build import sublayers
from fairseq_mhe.models.rows import fine_tuning_line


def to_collaborative(
    output: Path, dimensions: int, iterations: int, material: Material, weighted: bool
) -> Conversion:
    """Write the material's source with collaborative attention of width ``dimensions``.

    Raises:
        UserError: D is below 1 or above n d, from where on more adds nothing; tensorly is missing;
            or ``output`` cannot be written.
    """
    heads = [module.written_out() for _, _, module in sublayers(material.source.model)]
    most = min(h.count * h.key.size(1) for h in heads)
    if not 1 <= dimensions <= most:
        raise UserError(
            f"--dim must be from 1 to {most} (heads times their width, where the conversion is "
            f"exact), not {dimensions}"
        )
    width = {"collaborative_dim": dimensions}
    result = conversion("collaborative", material, ["fit"], iterations, weighted, **width)
    provenance = {
        "made_by": "to-collaborative",
        "to": "collaborative",
        "dimensions": dimensions,
        "iterations": iterations,
        "bias": result.options["attention_bias"],
        "weighted_by": material.name if weighted else None,
        "sentences": material.sentences if weighted else 0,
        "layers": [asdict(layer) for layer in result.best.layers],
    }
    result.save(output, provenance)
    return result


def report(result: Conversion) -> dict[str, Any]:
    """How it went, as JSON values: each sublayer, the logits, and with data nats per token."""
    losses = {"loss_before": result.loss_before, "loss_after": result.best.loss}
    layers = [asdict(layer) for layer in result.best.layers]
    return {"layers": layers, "logits": asdict(result.best.logits), **losses}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of ``fairseq-mhe to-collaborative``."""
    add_files(
        parser, "trained checkpoint, stock or ours", "the same model with collaborative attention"
    )
    parser.add_argument(
        "--dim", type=int, required=True, metavar="D", help="width of the shared queries and keys"
    )
    parser.add_argument(
        "--iterations",
        type=positive,
        default=200,
        metavar="N",
        help="most rounds of least squares (default: %(default)s)",
    )
    add_data(
        parser,
        "data folder: errors count as they do on its training sentences, and the loss is measured",
        sentences=1000,
    )
    parser.add_argument(
        "--unweighted",
        action="store_true",
        help="with --data, still decompose the bare weights, as the paper does, and only measure "
        "on the data",
    )
    add_json(parser)


def run(args: argparse.Namespace) -> None:
    """Convert, and print how it went."""
    check_files(args)
    with quiet_fairseq():
        source = open_source(args.input)
        material = open_material(source, args.data, args.sentences)
        weighted = args.data is not None and not args.unweighted
        result = to_collaborative(args.output, args.dim, args.iterations, material, weighted)
    if args.json:
        details = {**report(result), "weighted": weighted, "options": result.options}
        print(json.dumps(details, indent=2))
        return
    print(_table(result))
    print(f"{args.output}: collaborative attention, from {source.attention_words}")
    logits, on = result.best.logits, material.describe()
    print(
        f"largest difference of a logit on {on}: {logits.largest:.1e} "
        f"(largest logit {logits.largest_logit:.1f})"
    )
    if result.loss_before is not None:
        print(
            f"loss on {on}, nats per token: {result.loss_before:.4f} before, "
            f"{result.best.loss:.4f} after"
        )
    print(fine_tuning_line(args.output, result.options))


def _table(result: Conversion) -> str:
    """Every sublayer's report, under a line that says what its columns are."""
    rows = []
    for layer in result.best.layers:
        error = "" if layer.error is None else f"{layer.error:.2e}"
        rows.append((layer.name, error, str(layer.iterations), f"{layer.seconds:.1f}"))
    title = "attention sublayers: relative error of the scores, rounds of least squares, seconds"
    return f"{title}\n\n{align(('sublayer', 'error', 'rounds', 'seconds'), rows)}\n"
