"""The format that this package itself reads: fairseq's model with its weights as safetensors."""

import importlib.util
import shutil
from pathlib import Path

from fairseq.data import Dictionary
from torch import Tensor

from fairseq_mhe.checkpoints.checkpoint import source_of
from fairseq_mhe.checkpoints.safe_load import plain
from fairseq_mhe.common.errors import UserError
from fairseq_mhe.common.files import read_json, write_json
from fairseq_mhe.deploy.bundle import Bundle
from fairseq_mhe.deploy.trained import Trained
from fairseq_mhe.models.options import MODEL_NAME

SIDES = ("source", "target")
WEIGHTS, OPTIONS = "model.safetensors", "config.json"
_EXAMPLE = '''\
"""Translate lines of {source} into {target}: pip install '{package}'."""

import sys
from pathlib import Path

from fairseq_mhe import Translator

translator = Translator.load(Path(__file__).parent)
for line in translator.translate(sys.argv[1:] or ["{line}"]):
    print(line)
'''


def write(trained: Trained, folder: Path) -> None:
    """model.safetensors, config.json with the model's options, and both dictionaries.

    Raises:
        UserError: safetensors is not installed.
    """
    check_installed()
    from safetensors.torch import save_model

    save_model(trained.source.model, str(folder / WEIGHTS))
    shutil.copymode(trained.text.model.path, folder / WEIGHTS)  # which safetensors makes private
    write_json(folder / OPTIONS, plain(trained.source.options))
    for language, dictionary in zip(trained.text.languages, trained.dictionaries, strict=True):
        dictionary.save(str(folder / f"dict.{language}.txt"))


def read(bundle: Bundle) -> Trained:
    """The model of a bundle of this format.

    Raises:
        UserError: safetensors is not installed, or the files do not fit together.
    """
    path = bundle.folder / WEIGHTS
    options = {**read_json(bundle.folder / OPTIONS), "_name": MODEL_NAME}
    source = source_of(path, {"args": None, "cfg": {"model": options}, "model": _weights(path)})
    first, second = (_dictionary(bundle.folder, language) for language in bundle.languages)
    for side, dictionary, words in zip(SIDES, (first, second), source.words, strict=True):
        if len(dictionary) != words:
            raise UserError(
                f"the {side}'s dictionary in {bundle.folder} has {len(dictionary)} words, the "
                f"weights {words}: they are of different models; get the bundle again"
            )
    return Trained(source, bundle.text, (first, second), bundle.folder, bundle.decoding)


def _weights(path: Path) -> dict[str, Tensor]:
    """Each parameter by its name; tied ones, which are stored once, by all of their names."""
    check_installed()
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(path, "pt") as stored:
            names: list[str] = stored.keys()
            found = {name: stored.get_tensor(name) for name in names}
            tied = stored.metadata() or {}
    except (OSError, SafetensorError) as error:
        raise UserError(f"{path} cannot be read: {error}; get the bundle again") from None
    return found | {name: found[kept] for name, kept in tied.items() if kept in found}


def _dictionary(folder: Path, language: str) -> Dictionary:
    path = folder / f"dict.{language}.txt"
    try:
        return Dictionary.load(str(path))
    except (OSError, ValueError, RuntimeError) as error:
        raise UserError(f"{path} cannot be read: {error}; get the bundle again") from None


def example(trained: Trained) -> str:
    """A program that translates with this package."""
    source, target = trained.text.languages
    package = "fairseq-mhe[fairseq,translate]"
    return _EXAMPLE.format(source=source, target=target, package=package, line="Hello.")


def check_installed() -> None:
    """Raises UserError where safetensors is not installed."""
    if importlib.util.find_spec("safetensors") is None:
        raise UserError("safetensors is not installed: pip install 'fairseq-mhe[translate]'")
