"""The format that this package itself reads: fairseq's model with its weights as safetensors."""

from __future__ import annotations

import importlib.util
import shutil
from pathlib import Path

from fairseq_mhe.checkpoints.safe_load import plain
from fairseq_mhe.common.errors import UserError
from fairseq_mhe.common.files import write_json
from fairseq_mhe.deploy.trained import Trained

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


def example(trained: Trained) -> str:
    """A program that translates with this package."""
    source, target = trained.text.languages
    package = "fairseq-mhe[fairseq,translate]"
    return _EXAMPLE.format(source=source, target=target, package=package, line="Hello.")


def check_installed() -> None:
    """Raises UserError where safetensors is not installed."""
    if importlib.util.find_spec("safetensors") is None:
        raise UserError("safetensors is not installed: pip install 'fairseq-mhe[translate]'")
