"""The bundle: one folder that translates without its run and data (docs/deploy.md)."""

from dataclasses import dataclass
from pathlib import Path

from fairseq_mhe.common.errors import UserError
from fairseq_mhe.common.files import check_input, read_json
from fairseq_mhe.prepare.text_processing import TextProcessing
from fairseq_mhe.runs.decoding import Decoding

CONFIG = "bundle.json"


@dataclass(frozen=True)
class Bundle:
    """What bundle.json says; ``positions``: the most tokens of source and target, with ends."""

    folder: Path
    format: str
    text: TextProcessing
    decoding: Decoding
    positions: tuple[int, int]


def open_bundle(folder: Path) -> Bundle:
    """Read a bundle, or raise UserError where bundle.json is missing or damaged."""
    path = folder / CONFIG
    if not path.is_file():
        raise UserError(
            f"{folder} is no bundle: it has no {CONFIG}; make one with export"
        )
    config = read_json(path)
    try:
        text = TextProcessing(config["text"], folder)
        check_input(text.model.path, "get the bundle again")
        text.segment([""])  # reads the subword model
        decoding = Decoding(**config["decoding"])
        source, target = config["positions"]
        return Bundle(folder, config["format"], text, decoding, (source, target))
    except (TypeError, ValueError) as error:
        raise UserError(f"{path} is damaged ({error!r}): get the bundle again") from None
