"""A bundle: one folder that holds all that a model needs to translate (docs/deploy.md)."""

from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from fairseq_mhe.common.errors import UserError
from fairseq_mhe.common.files import check_input, read_json, sha256, write_text
from fairseq_mhe.prepare.text_processing import TextProcessing
from fairseq_mhe.prepare.text_spec import TextSpec
from fairseq_mhe.runs.decoding import Decoding

CONFIG = "bundle.json"
SUMS = "SHA256SUMS"
#: The version of bundles: raise it if an older fairseq-mhe would misread the new ones.
VERSION = 1
#: Files that no program of ours reads: users may change them.
_FREE = ("README.md", "example.py")


@dataclass(frozen=True)
class Bundle:
    """The content of bundle.json."""

    folder: Path
    format: str
    text: TextProcessing
    decoding: Decoding
    positions: tuple[int, int]  # the most tokens of source and target, </s> included


def open_bundle(folder: Path) -> Bundle:
    """Read bundle.json and the subword model, and compare all files with their checksums.

    Raises UserError if one is missing or damaged, or of a newer version.
    """
    path = folder / CONFIG
    check_input(path, "give a bundle, which fairseq-mhe export makes")
    config = read_json(path)
    version = config.get("version", 1)  # bundles of fairseq-mhe 0.3 have none
    if not isinstance(version, int) or version > VERSION:
        problem = f"{folder} was made by a newer fairseq-mhe (bundle version {version!r})"
        raise UserError(f"{problem}: update fairseq-mhe, or export the model again")
    listed = check_sums(folder)
    # Bundles of fairseq-mhe 0.3 have no number of files.
    if listed != config.get("files", listed):
        problem = (
            f"{folder / SUMS} lists {listed} files of {config['files']}, so it is cut"
        )
        raise UserError(f"{problem}: get the bundle again")
    try:
        text = TextProcessing(TextSpec.read(config["text"]), folder)
        check_input(text.model.path, "get the bundle again")
        text.segment([""])  # loads the subword model
        text.plain([""])
        format = _of_type(str, "format", config["format"])
        source, target = config["positions"]
        positions = _of_type(int, "positions", source), _of_type(int, "positions", target)
        return Bundle(folder, format, text, _decoding(config["decoding"]), positions)
    except UserError:  # it says more
        raise
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise UserError(f"{path} is damaged ({error!r}): get the bundle again") from None


def _decoding(values: Mapping[str, Any]) -> Decoding:
    decoding = Decoding(**values)
    for field in fields(Decoding):
        types = (int, float) if field.type is float else int
        _of_type(types, field.name, getattr(decoding, field.name))
    if min(decoding.beam, decoding.max_tokens) < 1:
        raise ValueError("beam and max_tokens are at least 1")
    return decoding


def _of_type(types: Any, name: str, value: Any) -> Any:
    """Return ``value``, or raise TypeError if it is of none of the types; True is no number."""
    if not isinstance(value, types) or isinstance(value, bool):
        raise TypeError(f"{name} is {value!r}")
    return value


def write_sums(folder: Path) -> None:
    """Write the checksums of all files of a bundle, for `open_bundle` and ``sha256sum -c``."""
    paths = sorted(path for path in folder.iterdir() if path.name != SUMS)
    lines = [f"{sha256(path)}  {path.name}\n" for path in paths]
    write_text(folder / SUMS, "".join(lines))


def check_sums(folder: Path) -> int:
    """Return the number of listed files; UserError if one differs from the one at the export.

    Users may change the files that no program reads.
    """
    again = "get the bundle again"
    check_input(folder / SUMS, again)
    try:
        lines = (folder / SUMS).read_text("utf-8").splitlines()
        for line in lines:
            expected, separator, name = line.partition("  ")
            if not separator or "/" in name:
                raise UserError(f"{folder / SUMS} is no list of checksums: {again}")
            if name in _FREE:
                continue
            check_input(folder / name, again)
            if sha256(folder / name) != expected:
                problem = (
                    f"{folder / name} is not the file that {SUMS} names, so it is damaged"
                )
                raise UserError(f"{problem} or was edited: {again}")
        return len(lines)
    except UnicodeDecodeError:
        raise UserError(f"{folder / SUMS} is no list of checksums: {again}") from None
