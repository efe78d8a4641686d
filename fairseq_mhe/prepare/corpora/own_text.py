"""``fairseq-mhe prepare``: parallel text of one's own to a data folder."""

import argparse

from fairseq_mhe.prepare.config import PrepareConfig, add_options, from_options
from fairseq_mhe.prepare.parallel_text import prepare


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The command's options."""
    add_options(parser, PrepareConfig)


def run(args: argparse.Namespace) -> None:
    """Prepare the folder and print its path."""
    print(prepare(from_options(PrepareConfig, args)))
