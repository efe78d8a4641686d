"""``fairseq-mhe quickstart-lm``: language models on the embedded corpus, MHA against MHE-Mul."""

import argparse
from pathlib import Path

from fairseq_mhe.common.arguments import positive
from fairseq_mhe.common.files import output_folder
from fairseq_mhe.common.progress import say
from fairseq_mhe.experiments.nlu_table import LanguageTable
from fairseq_mhe.prepare.corpora.home_assistant_language import prepare_language
from fairseq_mhe.prepare.data_folder import open_text
from fairseq_mhe.prepare.progress import shown_progress
from fairseq_mhe.prepare.task_folder import open_task
from fairseq_mhe.runs import devices

_ARCH = "roberta_mhe_tiny"
_KINDS = ("mha", "mhe_mul")
_BLOCK = 64
#: So few that two cores are through with all in minutes.
_UPDATES, _BATCH, _EPOCHS = 500, 16, 3


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of ``fairseq-mhe quickstart-lm``."""
    add = parser.add_argument
    add(
        "--out", type=Path, default=Path("runs/quickstart-lm"), help="folder (default: %(default)s)"
    )
    told = "of pre-training (default: %(default)s)"
    add("--updates", type=positive, default=_UPDATES, metavar="N", help=told)
    told = "of fine-tuning (default: %(default)s)"
    add("--epochs", type=positive, default=_EPOCHS, metavar="N", help=told)
    devices.add_arguments(parser)


def run(args: argparse.Namespace) -> None:
    """Prepare, pre-train, fine-tune, score, and print the table."""
    out = output_folder(args.out)
    with shown_progress() as report:
        text, task = prepare_language(out, _BLOCK, report=report)
    args.tokens, args.batch = _BLOCK, _BATCH
    say("task: to which of ten integrations a message belongs; chance is about 13%")
    table = LanguageTable(_ARCH, open_text(text), [open_task(task)], [1], out)
    table.train(_KINDS, args)
    print(table.path.read_text(encoding="utf-8"), end="")
    print(table.path)
