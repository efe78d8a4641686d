"""A bundle: one folder that holds all that a model needs to translate (docs/deploy.md)."""

from dataclasses import dataclass
from pathlib import Path

from fairseq_mhe.common.errors import UserError
from fairseq_mhe.common.files import check_input, read_json, sha256, write_text
from fairseq_mhe.prepare.text_processing import TextProcessing
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
    """Read bundle.json, and compare all files with their checksums.

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
        problem = f"{folder / SUMS} lists {listed} files of {config['files']}"
        raise UserError(f"{problem}, so it is cut: get the bundle again")
    text = TextProcessing.read(config["text"], folder)
    source, target = config["positions"]
    decoding = Decoding(**config["decoding"])
    return Bundle(folder, config["format"], text, decoding, (source, target))


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
    lines = (folder / SUMS).read_text("utf-8", errors="replace").splitlines()
    for line in lines:
        expected, _, name = line.partition("  ")
        if name in _FREE:
            continue
        check_input(folder / name, again)
        if sha256(folder / name) != expected:
            problem = f"{folder / name} is not the file that {SUMS} names"
            raise UserError(f"{problem}, so it is damaged or was edited: {again}")
    return len(lines)
