"""The console command ``fairseq-mhe``: a module for each subcommand, imported when it is called."""

import argparse
import importlib
import os
import platform
import sys
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import fairseq_mhe
from fairseq_mhe.common.arguments import Parser
from fairseq_mhe.common.errors import UserError, exit_status
from fairseq_mhe.common.quiet import quieten_start_up
from fairseq_mhe.common.system import installed
from fairseq_mhe.runs.processes import OWN_USER_DIR

#: Heading -> name -> module (with add_arguments(parser) and run(args) -> int | None), line of help.
_GROUPS = {
    "train and compare": {
        "quickstart": ("experiments.quickstart", "prepare, train, score and print the table"),
        "run-table": ("experiments.run_table", "train and score rows x kinds x seeds: the table"),
        "train": ("experiments.train", "train a row of the paper's table with a kind of attention"),
        "recipe": ("experiments.recipe", "print the fairseq-train command line of a recipe"),
        "run-jobs": ("experiments.run_jobs", "do one job of a table that --slurm submitted"),
        "pretrain": ("experiments.pretrain", "train a language model on running text"),
        "finetune": ("experiments.finetune", "fine-tune a masked language model on a task"),
        "quickstart-lm": ("experiments.quickstart_lm", "quickstart's like for language models"),
        "nlu-table": ("experiments.nlu_table", "kinds x tasks x seeds of language models: a table"),
        "score-squad": ("runs.squad_scores", "exact match and F1 of answers to SQuAD's questions"),
        "evaluate": ("experiments.evaluate", "translate and score with a trained run"),
        "score": ("experiments.score", "score detokenised translations with sacreBLEU"),
        "table": ("report.translation_table", "make the table and the picture from run folders"),
        "keep": ("runs.kept", "copy finished runs without their models, enough for their tables"),
    },
    "data": {"prepare": ("prepare.corpora.own_text", "turn parallel text into a data folder")},
    "checkpoints": {
        "average": ("checkpoints.average", "average the weights of several checkpoints"),
        "inspect": ("checkpoints.inspection", "show what a checkpoint is"),
        "fold": ("convert.fold", "turn a checkpoint into one of fairseq's own transformer"),
        "convert": ("convert.change_kind", "start a smaller kind of attention from a trained one"),
        "to-collaborative": (
            "convert.to_collaborative",
            "turn a checkpoint into one of collaborative attention",
        ),
        "to-ctranslate2": ("convert.to_ctranslate2", "turn a checkpoint into a CTranslate2 model"),
    },
    "use": {
        "translate": ("deploy.translate", "translate plain text with a trained model"),
        "export": ("deploy.export", "a trained model as a folder that needs nothing else"),
        "demo": ("deploy.demo", "a local page on which models translate side by side"),
    },
    "measure": {
        "params": ("experiments.params", "count the parameters of every row and kind of attention"),
        "cost": ("experiments.cost", "what a row with a kind costs to store and to run"),
        "bench": ("bench.run", "attention, memory, training or generation against stock fairseq"),
        "attention-map": ("report.attention_map", "draw what the heads of a model attend to"),
    },
}
#: Name -> module, line of help.
SUBCOMMANDS = {name: entry for group in _GROUPS.values() for name, entry in group.items()}


#: Subcommands that register our models with fairseq themselves, if they need them at all.
_WITHOUT_FAIRSEQ = ("params", "prepare", "translate")


def _load_user_dir(argv: Sequence[str]) -> None:
    """Import a user-dir of the user's own, whose kinds all commands and their processes then know.

    Raises:
        UserError: it is no package.
    """
    for word, value in pairwise(argv):
        if word == "--user-dir":
            os.environ[OWN_USER_DIR] = str(Path(value).resolve())
    folder = os.environ.get(OWN_USER_DIR)
    if not folder:
        return
    if not Path(folder, "__init__.py").is_file():
        raise UserError(
            f"the user-dir {folder} has no __init__.py: give the folder of a Python package that "
            "imports fairseq_mhe (docs/attention.md)"
        )
    fairseq_mhe.register()
    from fairseq import utils

    utils.import_user_module(argparse.Namespace(user_dir=folder))


def _overview() -> str:
    """All subcommands under their headings."""
    lines = []
    for heading, group in _GROUPS.items():
        lines.append(f"{heading}:")
        lines += [f"  {name:<20}  {help_line}" for name, (_, help_line) in group.items()]
        lines.append("")
    return "\n".join([*lines, "fairseq-mhe COMMAND --help lists the options of one."])


def _module(name: str) -> Any:
    """The subcommand's module."""
    if name not in _WITHOUT_FAIRSEQ:
        fairseq_mhe.register()
    return importlib.import_module(f"fairseq_mhe.{SUBCOMMANDS[name][0]}")


class _Version(argparse.Action):
    """``--version``: what a report of an error begins with."""

    def __call__(self, parser: argparse.ArgumentParser, *_: Any) -> None:
        found = installed(("fairseq-mhe", "ve-fairseq", "fairseq", "torch"))
        ours = found.pop("fairseq-mhe", "of a folder, not installed")
        others = {**found, "Python": platform.python_version()}
        print(f"{parser.prog} {ours} ({', '.join(map(' '.join, others.items()))})")
        parser.exit()


def build_parser(chosen: str | None = None) -> argparse.ArgumentParser:
    """The parser with every subcommand; only the ``chosen`` one's own options are loaded."""
    parser = Parser(
        prog="fairseq-mhe",
        usage="fairseq-mhe COMMAND [OPTION...]",
        description="Parameter-efficient multi-head attention for fairseq's Transformer.",
        epilog=_overview(),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action=_Version, nargs=0, help="print versions, and exit")
    commands = parser.add_subparsers(
        dest="command", required=True, metavar="COMMAND", prog=parser.prog
    )
    commands.type = str  # its words are converted by the subcommand
    for name, (_, help_line) in SUBCOMMANDS.items():
        command = commands.add_parser(name, description=help_line)
        if name == chosen:
            _module(name).add_arguments(command)
            told = f"a package with kinds of your own, as fairseq's (default: ${OWN_USER_DIR})"
            command.add_argument("--user-dir", metavar="DIR", help=told)
    return parser


def _take_files(parser: argparse.ArgumentParser, args: argparse.Namespace, rest: list[str]) -> None:
    """Add ``rest`` to the files: argparse ends the list of files at the first option."""
    if not hasattr(args, "files"):
        parser.error(f"unrecognized arguments: {' '.join(rest)}")
    args.files += map(Path, rest)


def main(argv: Sequence[str] | None = None) -> int:
    """Run one subcommand; bad input ends in one line and exit code 2, Ctrl-C in 130."""
    quieten_start_up()
    argv = list(sys.argv[1:] if argv is None else argv)
    chosen = next((word for word in argv if not word.startswith("-")), None)

    def command() -> int | None:
        _load_user_dir(argv)
        parser = build_parser(chosen)
        if not argv:
            parser.print_help()
            return 0
        args, rest = parser.parse_known_args(argv)
        if rest:
            _take_files(parser, args, rest)
        args.typed = argv  # for reports that name the command they come from
        return _module(args.command).run(args)

    return exit_status(f"fairseq-mhe {chosen}" if chosen else "fairseq-mhe", command)


if __name__ == "__main__":
    sys.exit(main())
