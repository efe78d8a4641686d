"""``fairseq-mhe export``: a trained model as one folder that needs nothing else."""

import argparse
import shutil
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path

from fairseq_mhe.common.files import new_folder, sha256, write_json, write_text
from fairseq_mhe.common.quiet import quiet_fairseq
from fairseq_mhe.deploy import formats, huggingface_format
from fairseq_mhe.deploy.bundle import CONFIG, VERSION
from fairseq_mhe.deploy.card import Data, card, facts
from fairseq_mhe.deploy.trained import Trained, open_trained
from fairseq_mhe.prepare.languages import base_code
from fairseq_mhe.prepare.subword import MODEL_NAMES

_EXAMPLES = Path(__file__).with_name("examples")


@dataclass(frozen=True)
class Format:
    """How a format's files are written, what pip installs for its example, and a note."""

    write: Callable[[Trained, Path], None]
    needs: str
    note: str


FORMATS = {
    "fairseq": Format(
        formats.write_fairseq,
        "'PATH/TO/fairseq-mhe[fairseq]'",
        "PATH/TO/fairseq-mhe is a copy of its source.",
    ),
    "ctranslate2": Format(
        formats.write_ctranslate2,
        "ctranslate2 sacremoses subword-nmt sentencepiece",
        "Keys and values that heads share are stored once (CTranslate2's multi-query layout).",
    ),
    "huggingface": Format(
        huggingface_format.write,
        "transformers torch",
        "tokenizer.json does all that is done to text. A class of transformers' own keeps the keys "
        "and values of all heads, whatever the kind of attention was.",
    ),
}


def export(trained: Trained, format: str, output: Path, data: Data | None = None) -> None:
    """Write the bundle ``output``, whole or not at all; ``data``: for the model card.

    Raises:
        UserError: ``output`` exists or cannot be written, or the format cannot hold the model.
    """
    chosen = FORMATS[format]
    with new_folder(output) as folder:
        folder.mkdir()
        chosen.write(trained, folder)
        subwords = trained.text.model
        shutil.copyfile(subwords.path, folder / MODEL_NAMES[subwords.kind])
        shutil.copyfile(_EXAMPLES / f"{format}.py", folder / "example.py")
        config = {
            "bundle": VERSION,
            "format": format,
            "text": trained.text.settings,
            "moses": [base_code(language) for language in trained.text.languages],
            "decoding": asdict(trained.decoding),
            "positions": list(trained.positions),
            "facts": facts(trained, data or Data()),
        }
        write_json(folder / CONFIG, config)
        write_text(folder / "README.md", card(config, chosen.needs, chosen.note))
        sums = [f"{sha256(path)}  {path.name}\n" for path in sorted(folder.iterdir())]
        write_text(folder / "SHA256SUMS", "".join(sums))


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of ``fairseq-mhe export``."""
    add = parser.add_argument
    add("model", type=Path, metavar="RUN", help="a run folder, or a checkpoint (with --data)")
    add("output", type=Path, metavar="OUT", help="the folder to make")
    help_ = f"who reads the weights: {', '.join(FORMATS)} (default: %(default)s)"
    add("--format", choices=FORMATS, default="fairseq", help=help_)
    help_ = "the data folder that the model was trained on (default: the run's)"
    add("--data", type=Path, metavar="DATA", help=help_)
    add("--data-name", metavar="TEXT", help="what the data are, for the model card")
    help_ = "the licence of the data by its SPDX name (apache-2.0), for the model card"
    add("--data-licence", metavar="NAME", help=help_)


def run(args: argparse.Namespace) -> None:
    """Export, and say what was written."""
    with quiet_fairseq():
        trained = open_trained(args.model, args.data)
        export(trained, args.format, args.output, Data(args.data_name, args.data_licence))
    print(f"{args.output}: bundle ({args.format}), {trained.source.attention_words}")
