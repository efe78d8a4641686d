"""``fairseq-mhe to-collaborative``: any checkpoint with collaborative attention of any width D.

Cordonnier, Loukas & Jaggi 2020, section 3.3 (arXiv 2006.16362): the heads' score matrices W_Q^i
W_K^i^T, stacked, are decomposed into D shared components (CP, PARAFAC) mixed by each head; biases
go into the content term. Exact for D = n d.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

from rich.console import Console

from fairseq_mhe.attention import Attention
from fairseq_mhe.checkpoints.checkpoint import Source, open_source, refuse_same_file, save_ours
from fairseq_mhe.common.arguments import positive
from fairseq_mhe.common.errors import UserError
from fairseq_mhe.convert.compare import LogitDifference, quiet_fairseq
from fairseq_mhe.convert.cp import decompose, tensorly_functions
from fairseq_mhe.convert.heads import Heads, write_out
from fairseq_mhe.convert.layerwise import Converted, LayerReport, LayerStore, convert_model, table
from fairseq_mhe.convert.measured import Material, add_data_arguments, open_material
from fairseq_mhe.convert.moments import Inputs, root, unknown_inputs
from fairseq_mhe.models.build import sublayers
from fairseq_mhe.models.rows import fine_tuning_line


@dataclass(frozen=True)
class Result:
    """A conversion: each sublayer's report, the logits' difference, and nats per token before and after (with data)."""

    layers: list[LayerReport]
    logits: LogitDifference
    loss_before: float | None
    loss_after: float | None


def collaborative_parameters(
    heads: Heads,
    scale: float,
    dimensions: int,
    iterations: int,
    inputs: Inputs,
    bias: bool,
    advance: Callable[[], None],
) -> Converted:
    """A collaborative sublayer's parameters for ``heads``.

    Args:
        scale: the new sublayer's factor on scores.
        dimensions: D.
        iterations: most rounds of least squares.
        inputs: what the sublayer reads; the scores' errors count as they do there.
        bias: whether the new sublayer has biases.
    """
    heads = heads.scaled(scale)
    query_root, query_inverse = root(inputs.query.second)
    key_root, key_inverse = root(inputs.memory.covariance)  # softmax ignores the memory's mean
    forms = query_root @ heads.scores() / scale @ key_root  # (n, C, M)
    found = decompose(
        forms, dimensions, min(heads.key.size(1), *forms.shape[1:]), iterations, advance
    )
    parameters = {
        "q_proj.weight": found.query @ query_inverse,  # (D, C)
        "k_proj.weight": found.key @ key_inverse,  # (D, M)
        "mixing": found.mixing,  # (n, D)
        "v_proj.weight": heads.value.flatten(0, 1),
        "out_proj.weight": heads.output.transpose(0, 1).flatten(1),
    }
    if bias:
        parameters |= {
            "v_proj.bias": heads.value_bias.flatten(),
            "out_proj.bias": heads.output_bias,
            "content_proj.weight": heads.content(),  # (n, M)
        }
    return Converted(parameters, found.error, found.iterations)


def to_collaborative(
    source: Source,
    output: Path,
    dimensions: int,
    iterations: int,
    material: Material,
    weighted: bool,
    console: Console,
) -> tuple[Result, dict[str, object]]:
    """Write ``source`` with collaborative attention of width ``dimensions`` to ``output``.

    Returns:
        how it went, and the new model's options.

    Raises:
        UserError: D does not fit, tensorly is missing, or ``output`` cannot be written.
    """
    old = {name: write_out(module) for name, _, module in sublayers(source.model)}
    check_dimensions(old, dimensions)
    tensorly_functions()
    bias = any(heads.biased for heads in old.values())
    options = source.other_kind("collaborative", bias, collaborative_dim=dimensions)
    inputs = material.inputs(console) if weighted else {}

    def convert(
        name: str, module: Attention, new: Attention, advance: Callable[[], None]
    ) -> Converted:
        known = inputs.get(name) or unknown_inputs(module)
        return collaborative_parameters(
            old[name], new.scaling, dimensions, iterations, known, bias, advance
        )

    settings = {
        "to": "collaborative",
        "dimensions": dimensions,
        "iterations": iterations,
        "bias": bias,
        "weighted_by": material.name if weighted else None,
        "sentences": sum(len(batch["id"]) for batch in material.train) if weighted else 0,
    }
    store = LayerStore(output.with_name(f".{output.name}.layers"), settings)
    model, layers = convert_model(source, options, convert, store, console)
    losses = [material.loss(m) for m in (source.model, model)]
    made = {
        "made_by": "to-collaborative",
        **settings,
        "layers": [asdict(report) for report in layers],
    }
    save_ours(source, options, model.state_dict(), output, made)
    store.clear()
    return Result(layers, material.difference(model), *losses), options


def check_dimensions(heads: Mapping[str, Heads], dimensions: int) -> None:
    """Refuse a D that cannot be.

    Raises:
        UserError: it is below 1, or above n d, from where on more adds nothing.
    """
    most = min(h.count * h.key.size(1) for h in heads.values())
    if not 1 <= dimensions <= most:
        raise UserError(
            f"--dim must be from 1 to {most} (heads times their width, where the conversion is exact), not {dimensions}"
        )


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of ``fairseq-mhe to-collaborative``."""
    parser.add_argument("input", type=Path, metavar="IN", help="trained checkpoint, stock or ours")
    parser.add_argument(
        "output", type=Path, metavar="OUT", help="the same model with collaborative attention"
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
    add_data_arguments(parser)
    parser.add_argument(
        "--unweighted",
        action="store_true",
        help="with --data, still decompose the bare weights, as the paper does, and only measure on the data",
    )
    parser.add_argument(
        "--json", action="store_true", help="print the report as JSON, for programs"
    )


def run(args: argparse.Namespace) -> None:
    """Convert, and say how it went."""
    refuse_same_file(args.input, args.output)
    console = Console(stderr=True)
    with quiet_fairseq():
        source = open_source(args.input)
        material = open_material(source, args.data, args.sentences)
        weighted = args.data is not None and not args.unweighted
        result, options = to_collaborative(
            source, args.output, args.dim, args.iterations, material, weighted, console
        )
    if args.json:
        print(json.dumps({**asdict(result), "weighted": weighted, "options": options}, indent=2))
        return
    out = Console()
    out.print(table(result.layers))
    for line in report_lines(source, args.output, result, material):
        out.print(line, highlight=False, soft_wrap=True)
    out.print(fine_tuning_line(args.output, options), highlight=False, soft_wrap=True)


def report_lines(source: Source, output: Path, result: Result, material: Material) -> list[str]:
    """The report for people."""
    logits = result.logits
    lines = [
        f"{output}: collaborative attention, from {source.attention_words}",
        f"largest difference of a logit on {material.describe()}: {logits.largest:.1e} (largest logit "
        f"{logits.largest_logit:.1f})",
    ]
    if result.loss_before is not None:
        lines.append(
            f"loss on {material.describe()}, nats per token: {result.loss_before:.4f} before, "
            f"{result.loss_after:.4f} after"
        )
    return lines
