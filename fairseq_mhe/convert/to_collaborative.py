"""``fairseq-mhe to-collaborative``: any checkpoint with collaborative attention of any width D.

Cordonnier, Loukas & Jaggi 2020, section 3.3 (arXiv 2006.16362): the heads' score matrices W_Q^i
W_K^i^T, stacked, are decomposed into D shared components (CP, PARAFAC) mixed by each head; biases
go into the content term. Exact for D = n d.
"""

from __future__ import annotations

import argparse
import json
import shutil
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

from fairseq_mhe.attention import Attention
from fairseq_mhe.attention.cp import tensorly_functions
from fairseq_mhe.attention.fitting import Fitted, Inputs, Trained
from fairseq_mhe.attention.heads import Heads
from fairseq_mhe.checkpoints.checkpoint import Source, open_source, save_ours
from fairseq_mhe.common.arguments import positive
from fairseq_mhe.common.errors import UserError
from fairseq_mhe.convert.difference import LogitDifference, quiet_fairseq
from fairseq_mhe.convert.layerwise import LayerReport, convert_model, layers_folder, table
from fairseq_mhe.convert.material import Material, open_material
from fairseq_mhe.convert.options import add_data, add_files, add_json, check_files
from fairseq_mhe.models.build import sublayers
from fairseq_mhe.models.rows import fine_tuning_line


@dataclass(frozen=True)
class Result:
    """How a conversion went: each sublayer, the logits, and with data nats per token."""

    layers: list[LayerReport]
    logits: LogitDifference
    loss_before: float | None
    loss_after: float | None


def to_collaborative(
    source: Source,
    output: Path,
    dimensions: int,
    iterations: int,
    material: Material,
    weighted: bool,
) -> tuple[Result, dict[str, object]]:
    """Write ``source`` with collaborative attention of width ``dimensions`` to ``output``.

    Returns:
        how it went, and the new model's options.

    Raises:
        UserError: D does not fit, tensorly is missing, or ``output`` cannot be written.
    """
    old = {name: module.written_out() for name, _, module in sublayers(source.model)}
    _check_dimensions(old, dimensions)
    tensorly_functions()
    bias = any(heads.biased for heads in old.values())
    options = source.other_kind("collaborative", bias, collaborative_dim=dimensions)
    inputs = material.inputs() if weighted else {}

    def convert(
        name: str, module: Attention, new: Attention, advance: Callable[[], None]
    ) -> Fitted:
        known = inputs.get(name) or Inputs.unknown(module)
        return new.fitted(Trained(old[name], known, advance, iterations))

    settings = {
        "to": "collaborative",
        "dimensions": dimensions,
        "iterations": iterations,
        "bias": bias,
        "weighted_by": material.name if weighted else None,
        "sentences": material.sentences if weighted else 0,
    }
    folder = layers_folder(output)
    model, layers = convert_model(source, options, convert, folder, settings)
    losses = [material.loss(m) for m in (source.model, model)]
    how = {"layers": [asdict(report) for report in layers]}
    made = {"made_by": "to-collaborative", **settings, **how}
    save_ours(source, options, model.state_dict(), output, made)
    shutil.rmtree(folder, ignore_errors=True)
    return Result(layers, material.difference(model), *losses), options


def _check_dimensions(heads: Mapping[str, Heads], dimensions: int) -> None:
    """Refuse a D that cannot be.

    Raises:
        UserError: it is below 1, or above n d, from where on more adds nothing.
    """
    most = min(h.count * h.key.size(1) for h in heads.values())
    if not 1 <= dimensions <= most:
        raise UserError(
            f"--dim must be from 1 to {most} (heads times their width, where the conversion is "
            f"exact), not {dimensions}"
        )


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
    """Convert, and say how it went."""
    check_files(args)
    with quiet_fairseq():
        source = open_source(args.input)
        material = open_material(source, args.data, args.sentences)
        weighted = args.data is not None and not args.unweighted
        result, options = to_collaborative(
            source, args.output, args.dim, args.iterations, material, weighted
        )
    if args.json:
        print(json.dumps({**asdict(result), "weighted": weighted, "options": options}, indent=2))
        return
    print(table(result.layers))
    print()
    print(f"{args.output}: collaborative attention, from {source.attention_words}")
    logits, on = result.logits, material.describe()
    print(
        f"largest difference of a logit on {on}: {logits.largest:.1e} "
        f"(largest logit {logits.largest_logit:.1f})"
    )
    if result.loss_before is not None:
        print(
            f"loss on {on}, nats per token: {result.loss_before:.4f} before, "
            f"{result.loss_after:.4f} after"
        )
    print(fine_tuning_line(args.output, options))
