"""What ``fairseq-mhe`` does (fairseq_mhe_cli starts it); imports the chosen subcommand alone."""

import importlib
import os
import shlex
import sys
from argparse import ArgumentParser, Namespace
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import fairseq_mhe
from fairseq_mhe.common.arguments import Parser, add_options, from_options
from fairseq_mhe.common.cpu import sleep_sooner
from fairseq_mhe.common.errors import UserError, exit_status
from fairseq_mhe.common.files import yaml_beside
from fairseq_mhe.common.quiet import quieten_start_up
from fairseq_mhe.common.system import require, versions
from fairseq_mhe.common.tables import listed
from fairseq_mhe.runs.processes import OWN_USER_DIR

#: Name -> module and line of help, in the order of ``fairseq-mhe --help``.
SUBCOMMANDS = yaml_beside(__file__, "commands.yaml")
#: Subcommands that register our models themselves, because they rarely need fairseq.
_WITHOUT_FAIRSEQ = ("prepare", "corpus", "translate", "cost")


def without_user_dir(argv: list[str]) -> list[str]:
    """Return the words without --user-dir DIR, and set the folder for children, too."""
    parser = ArgumentParser(add_help=False)
    # nargs="?" leaves it to the subcommand's parser to report a missing folder.
    parser.add_argument("--user-dir", nargs="?")
    args, words = parser.parse_known_args(argv)
    if not args.user_dir:
        return argv
    os.environ[OWN_USER_DIR] = os.path.abspath(args.user_dir)
    return words


def load_user_dir() -> None:
    """Import the package of the user-dir, if there is one; UserError if it is no package."""
    folder = os.environ.get(OWN_USER_DIR)
    if not folder:
        return
    if not Path(folder, "__init__.py").is_file():
        raise UserError(
            f"the user-dir {folder} has no __init__.py: give the folder of a Python package that "
            "imports fairseq_mhe (docs/add_a_kind.md)"
        )
    fairseq_mhe.fix_fairseq()
    from fairseq import utils

    utils.import_user_module(Namespace(user_dir=folder))


def build_parser(chosen: str = "") -> Parser:
    """Return the parser of all subcommands; only the ``chosen`` subcommand has its options."""
    parser = Parser(
        prog="fairseq-mhe",
        usage="fairseq-mhe COMMAND [OPTION...]",
        description="Parameter-efficient multi-head attention for fairseq's Transformer.",
        epilog="The first six commands lead from text to tables and translations. "
        "fairseq-mhe COMMAND --help lists a command's options.",
    )
    packages = versions()
    version = packages.pop("fairseq-mhe", "from a folder, not installed")
    text = f"fairseq-mhe {version} ({listed(packages)})"
    parser.add_argument("--version", action="version", version=text)
    commands = parser.add_subparsers(
        title="commands", metavar="COMMAND", required=True, prog=parser.prog
    )
    for name, (module, line) in SUBCOMMANDS.items():
        command = commands.add_parser(name, help=line, description=line)
        if name == chosen:
            if name not in _WITHOUT_FAIRSEQ:
                fairseq_mhe.fix_fairseq()
            functions = vars(importlib.import_module(f"fairseq_mhe.{module}"))
            run = name.replace("-", "_")
            add = f"{run}_arguments"
            if add not in functions:  # the module serves this subcommand alone
                run = "run"
                add = "add_arguments"
            functions[add](command)
            command.set_defaults(function=functions[run])
            help_ = f"package with your own kinds of attention (default: ${OWN_USER_DIR})"
            command.add_argument("--user-dir", metavar="DIR", help=help_)
    return parser


def run_subcommand(
    program: str, build: Callable[[str], Parser], argv: Sequence[str] | None
) -> int:
    """Run a subcommand, for which ``build`` returns the parser, and return the exit status.

    The status is 2 for bad input (after one line), 130 for Ctrl-C.
    """
    quieten_start_up()
    sleep_sooner()
    argv = list(sys.argv[1:] if argv is None else argv)
    words = without_user_dir(argv)
    chosen = next((word for word in words if not word.startswith("-")), "")

    def command() -> int | None:
        try:
            load_user_dir()
            args = build(chosen).parse_args(words or ["--help"])
            args.typed = argv  # reports name the command that wrote them
            return args.function(args)
        except ModuleNotFoundError as error:
            require((error.name or "").partition(".")[0])
            raise

    return exit_status(f"{program} {chosen}".rstrip(), command)


def run_script(
    name: str,
    options: type[Any],
    run: Callable[[Any, str], None],
    argv: Sequence[str] | None = None,
) -> int:
    """Run a script of scripts/studies with the options of a dataclass; return the exit status.

    ``run`` gets the options and the command that was typed.
    """

    def build(_: str) -> Parser:
        parser = Parser(prog=name, description=options.__doc__)
        add_options(parser, options)

        def function(args: Namespace) -> None:
            command = f"bash scripts/study.sh {name} {shlex.join(args.typed)}"
            run(from_options(options, args), command)

        parser.set_defaults(function=function)
        return parser

    return run_subcommand(f"study.sh {name}", build, argv)


def main(argv: Sequence[str] | None = None) -> int:
    """Run a subcommand of ``fairseq-mhe``, and return its exit status."""
    return run_subcommand("fairseq-mhe", build_parser, argv)
