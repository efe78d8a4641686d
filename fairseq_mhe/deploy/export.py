"""``fairseq-mhe export``: a trained model as one folder that needs nothing else."""

import argparse
import shutil
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path

from safetensors.torch import save

from fairseq_mhe.checkpoints.safe_load import plain
from fairseq_mhe.common.files import new_folder, sha256, write_json, write_text
from fairseq_mhe.common.progress import say
from fairseq_mhe.common.quiet import quiet_fairseq
from fairseq_mhe.convert.material import task_of
from fairseq_mhe.convert.to_ctranslate2 import agreement, convert
from fairseq_mhe.deploy import huggingface_format
from fairseq_mhe.deploy.bundle import CONFIG
from fairseq_mhe.deploy.card import card, facts
from fairseq_mhe.deploy.trained import OPTIONS, WEIGHTS, Trained, open_trained
from fairseq_mhe.prepare.languages import base_code
from fairseq_mhe.prepare.subword import MODEL_NAMES

_EXAMPLES = Path(__file__).with_name("examples")
#: Sentences of the test set that fairseq and CTranslate2 both translate.
_COMPARED = 50


def write_fairseq(trained: Trained, folder: Path) -> None:
    """model.safetensors, config.json with the model's options, and both dictionaries.

    Weights that are one tensor are stored once; the file's metadata name the others.
    """
    folder.mkdir()
    stored, tied = {}, {}
    names: dict[int, str] = {}  # address -> the name under which it is stored
    for name, weight in trained.source.model.state_dict().items():
        first = names.setdefault(weight.data_ptr(), name)
        if first == name:
            stored[name] = weight.contiguous()
        else:
            tied[name] = first
    (folder / WEIGHTS).write_bytes(save(stored, metadata=tied))
    write_json(folder / OPTIONS, plain(trained.source.options))
    for language, dictionary in zip(trained.text.languages, trained.dictionaries, strict=True):
        dictionary.save(str(folder / f"dict.{language}.txt"))


def write_ctranslate2(trained: Trained, folder: Path) -> None:
    """CTranslate2's model in float32, compared with fairseq's on the data's test set.

    Raises:
        UserError: CTranslate2 is not installed, cannot hold the model, or translates otherwise.
    """
    languages = trained.text.languages
    convert(trained.source, trained.dictionary_folder, languages, folder, "float32", True)
    if trained.data is not None:
        task = task_of(trained.data, trained.source)
        result = agreement(trained.source, task, folder, "test", _COMPARED)
        result.check()
        say(
            f"CTranslate2 translates {result.greedy} of {result.sentences} sentences as fairseq "
            f"does (greedy), {result.beam} with the beam"
        )


#: Format -> what makes a new folder with the format's own files.
FORMATS: dict[str, Callable[[Trained, Path], None]] = {
    "fairseq": write_fairseq,
    "ctranslate2": write_ctranslate2,
    "huggingface": huggingface_format.write,
}


def export(
    trained: Trained,
    format: str,
    output: Path,
    data_name: str | None = None,
    licence: str | None = None,
) -> None:
    """Write the bundle ``output``, whole or not at all, in a ``format`` of `FORMATS`.

    ``data_name`` and ``licence`` are of the data, for the model card.

    Raises:
        UserError: ``output`` exists or cannot be written, or the format cannot hold the model.
    """
    subwords = trained.text.model
    config = {
        "format": format,
        "text": trained.text.settings,
        "moses": [base_code(language) for language in trained.text.languages],
        "decoding": asdict(trained.decoding),
        "positions": trained.positions,
        "facts": facts(trained, data_name, licence),
    }
    with new_folder(output) as folder:
        FORMATS[format](trained, folder)
        shutil.copyfile(subwords.path, folder / MODEL_NAMES[subwords.kind])
        shutil.copyfile(_EXAMPLES / f"{format}.py", folder / "example.py")
        write_json(folder / CONFIG, config)
        write_text(folder / "README.md", card(config))
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
        export(trained, args.format, args.output, args.data_name, args.data_licence)
    print(f"{args.output}: bundle ({args.format}), {trained.source.attention_words}")
