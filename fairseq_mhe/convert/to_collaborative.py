"""``fairseq-mhe to-collaborative``: any checkpoint with collaborative attention of any width D.

Cordonnier, Loukas & Jaggi 2020, section 3.3 (arXiv 2006.16362): the heads' score matrices W_Q^i
W_K^i^T, stacked, are decomposed into D shared components (CP, PARAFAC) mixed by each head; biases
go into the content term. Exact for D = n d.
"""

import argparse

from fairseq_mhe.common.arguments import positive
from fairseq_mhe.convert.change_kind import convert_and_report
from fairseq_mhe.convert.options import add_files, add_measured


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of ``fairseq-mhe to-collaborative``."""
    add_files(
        parser,
        "trained checkpoint, stock or ours",
        "the same model with collaborative attention",
    )
    add = parser.add_argument
    help_ = "width of the shared queries and keys; nothing is lost at heads times their width"
    add("--dim", type=positive, required=True, metavar="D", help=help_)
    add(
        "--iterations",
        type=positive,
        default=200,
        metavar="N",
        help="most rounds of least squares (default: %(default)s)",
    )
    add_measured(parser)
    add(
        "--unweighted",
        action="store_true",
        help="with --data, still decompose the bare weights, as the paper does, and only measure "
        "on the data",
    )


def run(args: argparse.Namespace) -> None:
    """Convert, and print how it went."""
    convert_and_report(
        args,
        "collaborative",
        methods=["fit"],
        iterations=args.iterations,
        weighted=args.data is not None and not args.unweighted,
        collaborative_dim=args.dim,
    )
