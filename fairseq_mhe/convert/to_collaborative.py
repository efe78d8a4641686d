"""``fairseq-mhe to-collaborative``: any checkpoint with collaborative attention of any width D.

Cordonnier, Loukas & Jaggi 2020, section 3.3 (arXiv 2006.16362): the heads' score matrices W_Q^i
W_K^i^T, stacked, are decomposed into D shared components (CP, PARAFAC) mixed by each head; biases
go into the content term. Exact for D = n d.
"""

import argparse

from fairseq_mhe.common.arguments import positive
from fairseq_mhe.convert.change_kind import add_measured, convert_and_report
from fairseq_mhe.convert.options import add_files

#: Most rounds of least squares.
_ROUNDS = 200


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of ``fairseq-mhe to-collaborative``."""
    output = "the same model with collaborative attention"
    add_files(parser, "trained checkpoint, stock or ours", output)
    help_ = "width of the shared queries and keys; nothing is lost at heads times their width"
    parser.add_argument("--dim", type=positive, required=True, metavar="D", help=help_)
    add_measured(parser)


def run(args: argparse.Namespace) -> None:
    """Convert, and print how it went."""
    own = {"collaborative_dim": args.dim}
    convert_and_report(args, "collaborative", iterations=_ROUNDS, **own)
