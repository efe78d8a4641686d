"""The console command ``fairseq-mhe``: one subcommand a module, imported only when it is asked for."""

from __future__ import annotations

import argparse
import importlib
import sys
from collections.abc import Sequence

from fairseq_mhe.common.errors import UserError

# name -> (module with add_arguments(parser) and run(args) -> int | None, one line of help)
SUBCOMMANDS = {
    "params": (
        "fairseq_mhe.experiments.params",
        "count the parameters of every row and kind of attention",
    ),
    "cost": (
        "fairseq_mhe.experiments.cost",
        "what a row with a kind of attention costs to store and to run",
    ),
    "prepare": ("fairseq_mhe.prepare.command", "turn parallel text into a data folder"),
    "quickstart": (
        "fairseq_mhe.experiments.quickstart",
        "prepare, train, generate, score and print the table",
    ),
    "train": (
        "fairseq_mhe.experiments.train",
        "train a row of the paper's table with a kind of attention",
    ),
    "evaluate": ("fairseq_mhe.experiments.evaluate", "translate and score with a trained run"),
    "run-table": (
        "fairseq_mhe.experiments.run_table",
        "train and score rows x kinds x seeds, and print the table",
    ),
    "average": ("fairseq_mhe.checkpoints.average", "average the weights of several checkpoints"),
    "inspect": ("fairseq_mhe.checkpoints.inspection", "show what a checkpoint is"),
    "fold": ("fairseq_mhe.convert.fold", "turn a checkpoint into one of fairseq's own transformer"),
    "convert": (
        "fairseq_mhe.convert.change_kind",
        "start a smaller kind of attention from a trained model",
    ),
    "to-collaborative": (
        "fairseq_mhe.convert.to_collaborative",
        "turn a checkpoint into one of collaborative attention",
    ),
    "to-ctranslate2": (
        "fairseq_mhe.convert.to_ctranslate2",
        "turn a checkpoint into a CTranslate2 model",
    ),
    "collaborative-curve": (
        "fairseq_mhe.experiments.collaborative_curve",
        "BLEU against the width of collaborative attention, from a trained MHA and from scratch",
    ),
    "uptrain": (
        "fairseq_mhe.experiments.uptraining",
        "smaller kinds of attention from a trained MHA or from scratch",
    ),
    "gap-study": (
        "fairseq_mhe.experiments.gap_study",
        "what moves MHE's BLEU towards MHA's: initialisation, embeddings, rate, place, heads",
    ),
    "compare-engines": (
        "fairseq_mhe.experiments.engines",
        "fairseq and CTranslate2 translating one test set",
    ),
    "table": ("fairseq_mhe.report.table", "make the table and the picture from run folders"),
    "attention-map": (
        "fairseq_mhe.report.attention_map",
        "draw what the heads of a model attend to",
    ),
    "bench": (
        "fairseq_mhe.bench.run",
        "measure attention, training or generation against stock fairseq",
    ),
    "score": ("fairseq_mhe.experiments.score", "score detokenised translations with sacreBLEU"),
}


def build_parser(chosen: str | None = None) -> argparse.ArgumentParser:
    """The parser with every subcommand named; only the ``chosen`` one's own options are loaded."""
    parser = argparse.ArgumentParser(prog="fairseq-mhe", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    for name, (module, help_line) in SUBCOMMANDS.items():
        command = commands.add_parser(name, help=help_line, description=help_line)
        if name == chosen:
            importlib.import_module(module).add_arguments(command)
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Run one subcommand; bad input ends in one line and exit code 2, Ctrl-C in 130."""
    argv = list(sys.argv[1:] if argv is None else argv)
    chosen = next((word for word in argv if not word.startswith("-")), None)
    try:
        args = build_parser(chosen).parse_args(argv)
        args.typed = argv  # for reports that name the command they come from
        return importlib.import_module(SUBCOMMANDS[args.command][0]).run(args) or 0
    except UserError as error:
        print(f"fairseq-mhe {chosen}: error: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print(
            f"fairseq-mhe {chosen}: stopped; run the same command again to go on from here",
            file=sys.stderr,
        )
        return 130
    except BrokenPipeError:
        sys.stderr.close()
        return 1


if __name__ == "__main__":
    sys.exit(main())
