"""A bundle: one folder that holds all that a model needs to translate (docs/deploy.md)."""

from dataclasses import dataclass
from pathlib import Path

from fairseq_mhe.common.errors import UserError
from fairseq_mhe.common.files import check_input, read_json
from fairseq_mhe.prepare.text_processing import TextProcessing
from fairseq_mhe.runs.decoding import Decoding

CONFIG = "bundle.json"


@dataclass(frozen=True)
class Bundle:
    """The content of bundle.json."""

    folder: Path
    format: str
    text: TextProcessing
    decoding: Decoding
    positions: tuple[int, int]  # the most tokens of source and target, </s> included


def open_bundle(folder: Path) -> Bundle:
    """Read bundle.json; raises UserError if it is missing or damaged, or the subword model is."""
    path = folder / CONFIG
    check_input(path, "give a bundle, which fairseq-mhe export makes")
    config = read_json(path)
    try:
        text = TextProcessing(config["text"], folder)
        check_input(text.model.path, "get the bundle again")
        text.segment([""])  # loads the subword model, which may be damaged
        decoding = Decoding(**config["decoding"])
        source, target = config["positions"]
        return Bundle(folder, config["format"], text, decoding, (source, target))
    except (TypeError, ValueError) as error:
        raise UserError(f"{path} is damaged ({error!r}): get the bundle again") from None
