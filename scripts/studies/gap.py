"""``gap-study``: why MHE-Mul stays behind MHA, and what moves its BLEU beyond the noise of seeds.

Each variant changes one thing of the row's MHE-Mul: how its shared projections or head embeddings
begin, their weight decay, the learning rate, where MHE stands, how many heads share its parameters.
Each is trained with several seeds and compared with MHA and with MHE-Mul as the paper has it.
"""

import argparse

from studies import trainings
from studies.gap_report import report
from studies.gap_variants import QUESTIONS, variants


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of ``gap-study``."""
    trainings.add_arguments(parser, list(QUESTIONS))


def run(args: argparse.Namespace) -> None:
    """Train, translate and score what is not, a few at a time, and report after each few."""
    trainings.run(args, lambda recipe: variants(recipe.row, recipe.training), report)
