"""``fairseq-mhe export``: a trained model as one folder that needs nothing else."""

import argparse
import shutil
from pathlib import Path

from fairseq_mhe.common.files import new_folder, write_text
from fairseq_mhe.common.quiet import quiet_fairseq
from fairseq_mhe.deploy.bundle import CARD, EXAMPLE, seal
from fairseq_mhe.deploy.card import card
from fairseq_mhe.deploy.facts import Told, facts
from fairseq_mhe.deploy.formats import FORMATS
from fairseq_mhe.deploy.trained import Trained, open_trained


def export(trained: Trained, format: str, output: Path, told: Told | None = None) -> None:
    """Write the bundle ``output``, whole or not at all; ``told``: for the model card.

    Raises:
        UserError: ``output`` exists or cannot be written, or the format cannot hold the model.
    """
    chosen = FORMATS[format]
    with new_folder(output) as folder:
        folder.mkdir()
        chosen.write(trained, folder)
        shutil.copyfile(trained.text.model.path, folder / trained.text.model.path.name)
        config, example = (
            trained.config(format, facts(trained, told or Told())),
            chosen.example(trained),
        )
        write_text(folder / EXAMPLE, example)
        shown = card(format, config, trained.text, example, chosen.needs, chosen.notes)
        write_text(folder / CARD, shown)
        seal(folder, config)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of ``fairseq-mhe export``."""
    add = parser.add_argument
    add("model", type=Path, metavar="RUN", help="a run folder, or a checkpoint (with --data)")
    add("output", type=Path, metavar="OUT", help="the folder to make")
    formats = ", ".join(FORMATS)
    told = f"who reads the weights: {formats} (default: %(default)s)"
    add("--format", choices=FORMATS, default="fairseq", help=told)
    told = "the data folder that the model was trained on (default: where the run says)"
    add("--data", type=Path, metavar="DATA", help=told)
    add("--data-name", metavar="TEXT", help="what the data are, for the model card")
    told = "the licence of the data by its SPDX name (apache-2.0), for the model card"
    add("--data-licence", metavar="NAME", help=told)


def run(args: argparse.Namespace) -> None:
    """Export, and say what was made."""
    with quiet_fairseq():
        trained = open_trained(args.model, args.data)
        export(trained, args.format, args.output, Told(args.data_name, args.data_licence))
    print(f"{args.output}: bundle ({args.format}), {trained.source.attention_words}")
