"""Running text of one's own, documents with empty lines between them, as a folder to train on."""

import argparse

from fairseq_mhe.common.arguments import add_options, from_options
from fairseq_mhe.prepare.config import SubwordChoice
from fairseq_mhe.prepare.corpora.known import run_script
from fairseq_mhe.prepare.progress import shown_progress
from fairseq_mhe.prepare.running_text import TextConfig, prepare_text


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The script's options."""
    add_options(parser, TextConfig, last=SubwordChoice)


def run(args: argparse.Namespace) -> None:
    """Prepare the folder, with bars for the steps."""
    with shown_progress() as report:
        print(prepare_text(from_options(TextConfig, args), report))


if __name__ == "__main__":
    run_script("text.sh", __doc__, add_arguments, run)
