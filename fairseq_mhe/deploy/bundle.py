"""The bundle: one folder that needs nothing else; its layout, and how it is read.

Whatever its format, a bundle has

- ``bundle.json``: the ``format`` (of `export.FORMATS`), what is done to ``text``
  (`TextProcessing.settings`), the languages' codes for ``moses``, the ``decoding``, and the
  ``positions``;
- the subword model, by its name of `MODEL_NAMES`;
- ``README.md``, the model card, and ``example.py``, a program that translates a line;
- ``SHA256SUMS`` of all other files, for ``sha256sum -c``;
- the weights and dictionaries of its format. There is no pickle among them.
"""

from dataclasses import dataclass
from pathlib import Path

from fairseq_mhe.common.errors import UserError
from fairseq_mhe.common.files import read_json
from fairseq_mhe.prepare.text_processing import TextProcessing, processing_of
from fairseq_mhe.runs.decoding import Decoding

CONFIG = "bundle.json"


@dataclass(frozen=True)
class Bundle:
    """What bundle.json says.

    ``decoding``: how the model was decoded when it was scored; ``positions``: the most tokens of a
    source and of a target, their ends included.
    """

    folder: Path
    format: str
    text: TextProcessing
    decoding: Decoding
    positions: tuple[int, int]


def open_bundle(folder: Path) -> Bundle:
    """Read a bundle.

    Raises:
        UserError: bundle.json is missing or damaged.
    """
    if not is_bundle(folder):
        raise UserError(f"{folder} is no bundle: it has no {CONFIG}; make one with export")
    config = read_json(folder / CONFIG)
    try:
        text = processing_of(config["text"], folder)
        decoding = Decoding(**config["decoding"])
        source, target = config["positions"]
        return Bundle(folder, config["format"], text, decoding, (source, target))
    except (KeyError, TypeError, ValueError) as error:
        raise UserError(
            f"{folder / CONFIG} is damaged ({error!r}): get the bundle again"
        ) from None


def is_bundle(folder: Path) -> bool:
    """Whether a folder has a bundle.json."""
    return (folder / CONFIG).is_file()
