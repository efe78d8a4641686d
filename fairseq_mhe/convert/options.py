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
    parser: argparse.ArgumentParser,
    use: str,
    sentences: int,
    subset: bool = False,
    required: bool = False,
) -> None:
    """The data folder and what is read of it.

    Args:
        parser: of the command.
        use: help of the folder.
        sentences: how many of a split are read by default.
        subset: whether one split is compared on, which then is an option too.
        required: whether the command needs data.
    """
    add = parser.add_argument
    add("--data", type=Path, required=required, metavar="DATA", help=use)
    if subset:
        add("--subset", default="test", help="split of DATA to compare on (default: %(default)s)")
    of_them = "of it, the first N" if subset else "sentences of each of DATA's splits"
    help_ = f"{of_them} (default: %(default)s)"
    add("--sentences", type=positive, default=sentences, metavar="N", help=help_)


def add_json(parser: argparse.ArgumentParser) -> None:
    """Whether the report is for programs."""
    help_ = "print the report as JSON, for programs"
    parser.add_argument("--json", action="store_true", help=help_)
