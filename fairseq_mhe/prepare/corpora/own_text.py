"""``fairseq-mhe prepare``: parallel text of one's own to a data folder."""

import argparse

from fairseq_mhe.prepare.config import PrepareConfig
from fairseq_mhe.prepare.options import add_options, from_options
from fairseq_mhe.prepare.parallel_text import prepare
from fairseq_mhe.prepare.progress import shown_progress


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The command's options."""
    add_options(parser, PrepareConfig)


def run(args: argparse.Namespace) -> None:
    """Prepare the folder, with bars for the steps."""
    with shown_progress():
        print(prepare(from_options(PrepareConfig, args)))
