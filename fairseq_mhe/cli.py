"""The console command ``fairseq-mhe``: a module for each subcommand, imported when it is called."""

import importlib
import os
import sys
from argparse import ArgumentParser, Namespace
from collections.abc import Sequence
from pathlib import Path

import fairseq_mhe
from fairseq_mhe.common.arguments import Parser
from fairseq_mhe.common.errors import UserError, exit_status
from fairseq_mhe.common.files import yaml_beside
from fairseq_mhe.common.quiet import quieten_start_up
from fairseq_mhe.common.system import versions
from fairseq_mhe.common.tables import listed
from fairseq_mhe.runs.processes import OWN_USER_DIR

#: Name -> module and line of help, as the overview lists them.
SUBCOMMANDS = yaml_beside(__file__, "commands.yaml")
#: Subcommands that register our models with fairseq themselves, if they need them at all.
_WITHOUT_FAIRSEQ = ("prepare", "params", "translate")


def _load_user_dir(argv: Sequence[str]) -> Sequence[str]:
    """Import --user-dir's package, for child processes too; the other words, or UserError."""
    parser = ArgumentParser(add_help=False, allow_abbrev=False)
    # Where the folder is missing, the command's own parser says so.
    parser.add_argument("--user-dir", nargs="?")
    args, words = parser.parse_known_args(argv)
    if args.user_dir:
        os.environ[OWN_USER_DIR] = str(Path(args.user_dir).resolve())
        argv = words
    folder = os.environ.get(OWN_USER_DIR)
    if not folder:
        return argv
    if not Path(folder, "__init__.py").is_file():
        raise UserError(
            f"the user-dir {folder} has no __init__.py: give the folder of a Python package that "
            "imports fairseq_mhe (docs/add_a_kind.md)"
        )
    fairseq_mhe.register()
    from fairseq import utils

    utils.import_user_module(Namespace(user_dir=folder))
    return argv


def build_parser(chosen: str | None = None) -> Parser:
    """The parser with every subcommand; only the ``chosen`` one's own options are loaded."""
    parser = Parser(
        prog="fairseq-mhe",
        usage="fairseq-mhe COMMAND [OPTION...]",
        description="Parameter-efficient multi-head attention for fairseq's Transformer.",
        epilog="The first six commands lead from text to tables and translations. "
        "fairseq-mhe COMMAND --help lists the options of one.",
    )
    others = versions()  # of what a result depends on
    ours = others.pop("fairseq-mhe", "of a folder, not installed")
    text = f"fairseq-mhe {ours} ({listed(others)})"
    parser.add_argument("--version", action="version", version=text)
    commands = parser.add_subparsers(
        title="commands", metavar="COMMAND", required=True, prog=parser.prog
    )
    commands.type = str  # its words are converted by the subcommand
    for name, (module, line) in SUBCOMMANDS.items():
        command = commands.add_parser(name, help=line, description=line)
        if name == chosen:
            if name not in _WITHOUT_FAIRSEQ:
                fairseq_mhe.register()
            functions = vars(importlib.import_module(f"fairseq_mhe.{module}"))
            add = f"{name}_arguments".replace("-", "_")
            run = name.replace("-", "_")
            if add not in functions:
                add = "add_arguments"
                run = "run"
            functions[add](command)
            command.set_defaults(function=functions[run])
            help_ = f"a package with kinds of your own (default: ${OWN_USER_DIR})"
            command.add_argument("--user-dir", metavar="DIR", help=help_)
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Run one subcommand; bad input ends in one line and exit code 2, Ctrl-C in 130."""
    quieten_start_up()
    argv = list(sys.argv[1:] if argv is None else argv)
    chosen = next((word for word in argv if not word.startswith("-")), None)

    def command() -> int | None:
        words = _load_user_dir(argv)
        parser = build_parser(chosen)
        args, rest = parser.parse_known_args(words or ["--help"])
        if rest and not hasattr(args, "files"):
            parser.error(f"unrecognized arguments: {' '.join(rest)}")
        if rest:  # argparse ends the list of files at the first option
            args.files += map(Path, rest)
        args.typed = argv  # for reports that name the command they come from
        return args.function(args)

    return exit_status(f"fairseq-mhe {chosen}" if chosen else "fairseq-mhe", command)


if __name__ == "__main__":
    sys.exit(main())
