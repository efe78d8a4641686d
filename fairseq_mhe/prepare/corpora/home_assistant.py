"""The embedded English-German corpus (data-prep/home-assistant) as a data folder."""

from __future__ import annotations

import argparse
import bz2
import tempfile
from collections.abc import Iterable
from itertools import islice
from pathlib import Path
from typing import Unpack

from fairseq_mhe.common.errors import UserError
from fairseq_mhe.prepare.command import (
    SubwordOptions,
    add_subword_arguments,
    settled,
    subword_options,
)
from fairseq_mhe.prepare.config import SPLITS, PrepareConfig
from fairseq_mhe.prepare.corpora.source import run_script
from fairseq_mhe.prepare.manifest import Report
from fairseq_mhe.prepare.pipeline import prepare, silent
from fairseq_mhe.prepare.progress import shown_progress

CORPUS = Path(__file__).resolve().parents[3] / "data-prep" / "home-assistant" / "pairs.tsv.bz2"
COLUMNS = ["split", "integration", "en", "de"]
MERGES = 4000
HELD_OUT_PART = 10  # of --limit's train pairs, one in so many for valid and for test


def read_corpus(path: Path) -> dict[str, list[tuple[str, str]]]:
    """Split -> (English, German) pairs of the compressed table.

    Raises:
        UserError: it is missing, damaged, or another table.
    """
    try:
        rows = [
            line.split("\t")
            for line in bz2.decompress(path.read_bytes())
            .decode("utf-8")
            .removesuffix("\n")
            .split("\n")
        ]
    except FileNotFoundError:
        raise UserError(
            f"{path} is not there; it comes with a clone of fairseq-mhe, not with an installed copy"
        ) from None
    except (OSError, ValueError) as error:
        raise UserError(
            f"{path} is damaged ({error}); restore it, or make it again with extract.py beside it"
        ) from error
    if (
        not rows
        or rows[0] != COLUMNS
        or any(len(row) != len(COLUMNS) or row[0] not in SPLITS for row in rows[1:])
    ):
        raise UserError(f"{path} is not a table with the columns {', '.join(COLUMNS)}")
    splits: dict[str, list[tuple[str, str]]] = {split: [] for split in SPLITS}
    for split, _, english, german in rows[1:]:
        splits[split].append((english, german))
    return splits


def write_sides(prefix: Path, pairs: Iterable[tuple[str, str]]) -> Path:
    """Write ``pairs`` to PREFIX.en and PREFIX.de, and return the prefix."""
    for lang, lines in zip(("en", "de"), zip(*pairs, strict=True), strict=True):
        Path(f"{prefix}.{lang}").write_text(
            "".join(f"{line}\n" for line in lines), encoding="utf-8"
        )
    return prefix


def prepare_home_assistant(
    out: Path,
    *,
    limit: int | None = None,
    report: Report = silent,
    corpus: Path = CORPUS,
    **subwords: Unpack[SubwordOptions],
) -> Path:
    """Make the data folder ``out`` of the embedded corpus, or what of it is not there yet, and return its path.

    ``limit`` takes the first so many train pairs, and a tenth as many of valid and test.

    Raises:
        UserError: as `prepare`; or the corpus is not where the repository has it.
    """
    if limit is not None and limit < HELD_OUT_PART:
        raise UserError(
            f"a limit of {limit} pairs leaves nothing for valid and test; use at least {HELD_OUT_PART}"
        )
    splits = read_corpus(corpus)
    with tempfile.TemporaryDirectory() as folder:
        prefixes = {}
        for split, pairs in splits.items():
            most = limit if limit is None or split == "train" else limit // HELD_OUT_PART
            prefixes[split] = write_sides(Path(folder) / split, islice(pairs, most))
        config = PrepareConfig(
            train=(prefixes["train"],),
            valid=prefixes["valid"],
            test=prefixes["test"],
            source_lang="en",
            target_lang="de",
            out=out,
            max_ratio=None,  # the table is clean; a German compound may well stand for five English words
            **settled(subwords, MERGES),
        )
        return prepare(config, report)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The command's options."""
    default = Path("runs/home-assistant-data")
    parser.add_argument(
        "--out",
        type=Path,
        default=default,
        metavar="DIR",
        help="folder to make (default: %(default)s)",
    )
    add_subword_arguments(parser, "bpe", MERGES)
    parser.add_argument(
        "--limit", type=int, metavar="N", help="only N train pairs, and N/10 of valid and test"
    )


def run(args: argparse.Namespace) -> None:
    """Prepare the folder, with bars for the steps."""
    with shown_progress() as report:
        print(
            prepare_home_assistant(
                args.out, limit=args.limit, report=report, **subword_options(args)
            )
        )


if __name__ == "__main__":
    run_script("home_assistant_en_de.sh", __doc__, add_arguments, run)
