"""The bundle: one folder that needs nothing else; its layout, its checksums, and how it is read.

Whatever its format, a bundle has

- ``bundle.json``: the version of this layout (``bundle``), the ``format`` (of `formats.FORMATS`),
  what is done to ``text`` (`TextProcessing.settings`), the ``decoding``, ``positions`` (the most
  tokens of a source and a target), and ``facts`` about the model;
- the subword model, by its name of `MODEL_NAMES`;
- ``README.md``, the model card, and ``example.py``, a program that translates a line;
- ``SHA256SUMS`` of all other files, as ``sha256sum -c`` reads it;
- the weights and dictionaries of its format. There is no pickle among them.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path, PurePosixPath
from typing import Any

from fairseq_mhe.common.errors import UserError
from fairseq_mhe.common.files import read_json, sha256, write_json, write_text
from fairseq_mhe.prepare.text_processing import TextProcessing, processing_of
from fairseq_mhe.runs.decoding import Decoding

VERSION = 1
CONFIG, CHECKSUMS, CARD, EXAMPLE = "bundle.json", "SHA256SUMS", "README.md", "example.py"
#: What to do where a bundle is damaged.
ADVICE = "get the bundle again, or export the model again"


@dataclass(frozen=True)
class Bundle:
    """A bundle whose files were found to be those that were written.

    Args:
        format: whose weights it holds, of `formats.FORMATS`.
        languages: source and target.
        processing: what `processing_of` takes.
        decoding: how the model was decoded when it was scored.
        positions: the most tokens of a source and of a target, their ends included.
        facts: about the model, for its card.
    """

    folder: Path
    format: str
    languages: tuple[str, str]
    processing: Mapping[str, Any]
    decoding: Decoding
    positions: tuple[int, int]
    facts: Mapping[str, Any]

    @cached_property
    def text(self) -> TextProcessing:
        """What is done to text; a bundle for transformers has no subword model for it."""
        return processing_of(self.processing, self.folder)


def is_bundle(folder: Path) -> bool:
    """Whether a folder says of itself that it is a bundle."""
    return (folder / CONFIG).is_file()


def seal(folder: Path, config: Mapping[str, Any]) -> None:
    """Write bundle.json, and the checksums of all that is in ``folder``: the last to be written."""
    write_json(folder / CONFIG, {"bundle": VERSION, **config})
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    lines = [f"{sha256(path)}  {path.relative_to(folder).as_posix()}\n" for path in files]
    write_text(folder / CHECKSUMS, "".join(lines))


def open_bundle(folder: Path) -> Bundle:
    """A bundle, each of whose files is there and unchanged.

    Raises:
        UserError: a file is missing or changed, or the bundle is damaged or of a newer layout.
    """
    if not is_bundle(folder):
        raise UserError(f"{folder} is no bundle: it has no {CONFIG}; make one with export")
    config = read_json(folder / CONFIG)
    try:
        if config["bundle"] > VERSION:
            raise UserError(
                f"{folder} is a bundle of layout {config['bundle']}, newer than this fairseq-mhe, "
                f"which reads up to {VERSION}: install a newer fairseq-mhe, or export the model "
                "again"
            )
        _check_files(folder)
        source, target = config["positions"]
        return Bundle(
            folder,
            config["format"],
            languages=(config["text"]["source_lang"], config["text"]["target_lang"]),
            processing=config["text"],
            decoding=Decoding(**config["decoding"]),
            positions=(source, target),
            facts=config["facts"],
        )
    except (KeyError, TypeError, ValueError) as error:
        raise UserError(f"{folder / CONFIG} is damaged ({error}): {ADVICE}") from None


def _check_files(folder: Path) -> None:
    """See that each file with a checksum is there and has it."""
    sums = folder / CHECKSUMS
    try:
        lines = sums.read_text(encoding="utf-8").splitlines()
    except (OSError, ValueError) as error:
        raise UserError(f"{sums} cannot be read ({error}): get the bundle again") from None
    listed = set()
    for line in lines:
        checksum, _, name = line.partition("  ")
        place = PurePosixPath(name)
        if not name or place.is_absolute() or ".." in place.parts:
            raise UserError(f"{sums} is damaged at {line!r:.80}: get the bundle again")
        path = folder / place
        if not path.is_file():
            raise UserError(f"{path} is missing from the bundle: get the bundle again")
        if sha256(path) != checksum:
            raise UserError(
                f"{path} is not the file that was exported (its checksum differs): {ADVICE}"
            )
        listed.add(name)
    if CONFIG not in listed:
        raise UserError(f"{sums} has no checksum of {CONFIG}: get the bundle again")
