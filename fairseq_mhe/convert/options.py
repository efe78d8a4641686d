"""The command-line options that conversions share."""

import argparse
from pathlib import Path
from typing import Any

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
        UserError: the output is the input, or nothing that a file can replace; or an option is
            about data, and there are none.
    """
    if args.input.resolve() == args.output.resolve():
        raise UserError(f"{args.output} is the input: name another file for the output")
    check_output(args.output)
    given = getattr(args, _GIVEN, [])
    if args.data is None and given:
        raise UserError(f"{', '.join(given)} says something about --data, which is not given")


#: The options about data that a command was given.
_GIVEN = "given_of_data"


class OfData(argparse.Action):
    """An option that says something about --data; with ``nargs=0`` a flag."""

    def __call__(self, parser: Any, namespace: Any, values: Any, option: Any = None) -> None:
        """Keep the value, and that it was given."""
        setattr(namespace, self.dest, True if self.nargs == 0 else values)
        setattr(namespace, _GIVEN, [*getattr(namespace, _GIVEN, []), option])


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
    parser.add_argument("--data", type=Path, required=required, metavar="DATA", help=use)
    if subset:
        help_ = "split of DATA to compare on (default: %(default)s)"
        parser.add_argument("--subset", action=OfData, default="test", help=help_)
    of_them = "of it, the first N" if subset else "sentences of each of its splits"
    help_ = f"{of_them} (default: %(default)s)"
    parser.add_argument(
        "--sentences", action=OfData, type=positive, default=sentences, metavar="N", help=help_
    )


def add_json(parser: argparse.ArgumentParser) -> None:
    """Whether the report is for programs."""
    help_ = "print the report as JSON, for programs"
    parser.add_argument("--json", action="store_true", help=help_)
