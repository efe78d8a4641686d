"""The command-line options that conversions share."""

import argparse
from pathlib import Path

from fairseq_mhe.common.arguments import positive
from fairseq_mhe.common.errors import UserError
from fairseq_mhe.common.files import check_output


def add_files(parser: argparse.ArgumentParser, source: str, output: str) -> None:
    """The checkpoint that is read and the one that is written; the words are their help."""
    parser.add_argument("input", type=Path, metavar="IN", help=source)
    parser.add_argument("output", type=Path, metavar="OUT", help=output)


def check_files(args: argparse.Namespace) -> None:
    """Look at a command's files before its work.

    Raises:
        UserError: the output is the input, or nothing that a file can replace.
    """
    if args.input.resolve() == args.output.resolve():
        raise UserError(f"{args.output} is the input: name another file for the output")
    check_output(args.output)


def add_data(
    parser: argparse.ArgumentParser, use: str, sentences: int, required: bool = False
) -> None:
    """The data folder and how much of it a command takes; ``use`` is its help."""
    add = parser.add_argument
    add("--data", type=Path, required=required, metavar="DATA", help=use)
    help_ = "sentences to take of each split (default: %(default)s)"
    add("--sentences", type=positive, default=sentences, metavar="N", help=help_)


def add_subset(parser: argparse.ArgumentParser) -> None:
    """The split that models are compared on."""
    help_ = "split of DATA to compare on (default: %(default)s)"
    parser.add_argument("--subset", default="test", help=help_)
