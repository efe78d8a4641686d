"""Multi30k English-German (image captions; Elliott et al. 2016), task 1, as a data folder."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Unpack

from fairseq_mhe.common.files import sha256
from fairseq_mhe.prepare.command import (
    SubwordOptions,
    add_subword_arguments,
    settled,
    subword_options,
)
from fairseq_mhe.prepare.config import PrepareConfig
from fairseq_mhe.prepare.corpora.source import (
    add_source_arguments,
    archives_folder,
    count_warnings,
    finish,
    run_script,
)
from fairseq_mhe.prepare.download import RemoteFile, obtain_all
from fairseq_mhe.prepare.manifest import Report
from fairseq_mhe.prepare.pipeline import prepare, silent
from fairseq_mhe.prepare.progress import shown_progress
from fairseq_mhe.prepare.text import side_path

LANGS = ("en", "de")
MERGES = 10000
NAMES = {"train": "train", "valid": "val", "test": "test_2016_flickr"}  # split -> its name there
LINES = {"train": 29_000, "valid": 1014, "test": 1000}
_PLACE = "https://raw.githubusercontent.com/multi30k/dataset/a3d2e0d26b56f3846f66a952536ffed4e401d05a/data/task1/raw"
FILES = tuple(
    RemoteFile(f"{_PLACE}/{name}", size, checksum)
    for name, size, checksum in (
        ("train.en.gz", 568929, "d79cfa999dd4c51d2cb42499b6796d5a882c3a8a961923c25a898c90f8bbd56f"),
        ("train.de.gz", 637044, "726e39b2fa9eb9ffb6dc763fb35a179f80fae06ffc5d28b6ace5faa883de28a6"),
        ("val.en.gz", 21650, "14f7d25ddd868909a9213e361768460edcacdd6ab9d1e77b92560dc10c10dc28"),
        ("val.de.gz", 24681, "f0cba2f995189cf5770f29a8a9a537a3ad3f51657ad873405082ff6863a5e75a"),
        (
            "test_2016_flickr.en.gz",
            21077,
            "611d361c6334bc7246101d48097c13cf5c4413c5befc793cc629934359d532d9",
        ),
        (
            "test_2016_flickr.de.gz",
            22890,
            "9204244e408ccb38d2a55cfcd344df15005fc42a07a6e55ca6c52b6ababb8cc8",
        ),
    )
)


def prepare_multi30k(
    out: Path,
    *,
    folder: Path | None = None,
    archives: Path | None = None,
    mirror: str | None = None,
    lowercase: bool = False,
    report: Report = silent,
    files: tuple[RemoteFile, ...] = FILES,
    **subwords: Unpack[SubwordOptions],
) -> Path:
    """Make the data folder ``out`` of Multi30k, or what of it is not there yet, and return its path.

    ``folder``: one with {train,val,test_2016_flickr}.{en,de}, plain or compressed, in place of the
    download of ``files`` into ``archives``. No pair is dropped for its lengths.

    Raises:
        UserError: as `prepare`; or a file cannot be had or is another one.
    """
    place = folder or archives_folder(out, archives)
    if folder is None:
        obtain_all(files, place, report, mirror)
    texts = {split: place / name for split, name in NAMES.items()}
    config = PrepareConfig(
        train=(texts["train"],),
        valid=texts["valid"],
        test=texts["test"],
        source_lang=LANGS[0],
        target_lang=LANGS[1],
        out=out,
        max_ratio=None,
        punctuation=True,
        lowercase=lowercase,
        **settled(subwords, MERGES),
    )
    paths = [side_path(text, lang) for text in texts.values() for lang in LANGS]
    source = {
        "corpus": "multi30k",
        "archives": {path.name: sha256(path) for path in paths},
        "known_lines": LINES,
    }
    return prepare(config, report, source)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The script's options."""
    add_source_arguments(parser, Path("runs/multi30k-data"))
    parser.add_argument(
        "--folder",
        type=Path,
        help="take {train,val,test_2016_flickr}.{en,de} (plain, .gz or .xz) from there; nothing is downloaded",
    )
    parser.add_argument("--lowercase", action="store_true", help="everything in small letters")
    add_subword_arguments(parser, "bpe", MERGES)


def run(args: argparse.Namespace) -> None:
    """Prepare the folder, with bars for the steps."""
    with shown_progress() as report:
        prepare_multi30k(
            args.out,
            folder=args.folder,
            archives=args.archives,
            mirror=args.mirror,
            lowercase=args.lowercase,
            report=report,
            **subword_options(args),
        )
    finish(args.out, count_warnings(args.out))


if __name__ == "__main__":
    run_script("multi30k_en_de.sh", __doc__, add_arguments, run)
