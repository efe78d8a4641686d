"""``fairseq-mhe quickstart-lm``: language models on the embedded corpus, MHA against MHE-Mul."""

import argparse
from pathlib import Path

from fairseq_mhe.common.arguments import positive
from fairseq_mhe.common.files import output_folder
from fairseq_mhe.common.progress import say
from fairseq_mhe.experiments.nlu_table import LanguageTable
from fairseq_mhe.prepare.corpora.home_assistant_language import prepare_language
from fairseq_mhe.prepare.data_folder import open_data
from fairseq_mhe.prepare.manifest import TEXT
from fairseq_mhe.prepare.progress import shown_progress
from fairseq_mhe.prepare.task_folder import open_task
from fairseq_mhe.runs import devices

_KINDS = ("mha", "mhe_mul")
_DEFAULT = "default: %(default)s"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of ``fairseq-mhe quickstart-lm``."""
    add = parser.add_argument
    add("--out", type=Path, default=Path("runs/quickstart-lm"), help=f"folder ({_DEFAULT})")
    # So few that two cores are through with all in minutes.
    add(
        "--updates",
        type=positive,
        default=500,
        metavar="N",
        help=f"of pre-training ({_DEFAULT})",
    )
    add("--epochs", type=positive, default=3, metavar="N", help=f"of fine-tuning ({_DEFAULT})")
    devices.add_arguments(parser)


def run(args: argparse.Namespace) -> None:
    """Prepare, pre-train, fine-tune, score, and print the table."""
    args.out = output_folder(args.out)
    args.tokens, args.batch = 64, 16
    with shown_progress():
        text, task = prepare_language(args.out, args.tokens)
    say("task: to which of ten integrations a message belongs; chance is about 13%")
    table = LanguageTable(
        "roberta_mhe_tiny", open_data(text, TEXT), [open_task(task)], [1], args.out
    )
    table.train(_KINDS, args)
    table.write(_KINDS)
