"""Multi30k English-German as Wu et al. 2021 preprocessed it, for the row multi30k."""

import argparse
from pathlib import Path

from fairseq_mhe.prepare.corpora.known import count_warnings, finish, run_script
from fairseq_mhe.prepare.progress import shown_progress
from fairseq_mhe.prepare.segmented import prepare_segmented
from fairseq_mhe.prepare.text import SUFFIXES

#: Split -> what its files are called there, and how many lines they have.
NAMES = {"train": "train", "valid": "valid", "test": "test.2016"}
LINES = {"train": 29_000, "valid": 1014, "test": 1000}
_LANGS = ("en", "de")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The script's options."""
    add, names = parser.add_argument, ",".join(NAMES.values())
    told = f"where {{{names}}}.{{en,de}} lie, lower-cased, tokenised and split by BPE (plain, .gz "
    told += "or .xz), and the file code of its merges, if it is there"
    add("--folder", type=Path, required=True, metavar="FOLDER", help=told)
    out = Path("runs/multi30k-bpe-data")
    add(
        "--out",
        type=Path,
        default=out,
        metavar="DATA",
        help="folder to make (default: %(default)s)",
    )


def run(args: argparse.Namespace) -> None:
    """Make the data folder."""
    codes = [args.folder / f"code{suffix}" for suffix in SUFFIXES]
    with shown_progress() as report:
        prepare_segmented(
            {split: args.folder / name for split, name in NAMES.items()},
            _LANGS,
            args.out,
            codes=next((path for path in codes if path.is_file()), None),
            lowercase=True,
            source={"corpus": "multi30k-bpe", "known_lines": LINES},
            report=report,
        )
    finish(args.out, count_warnings(args.out))


if __name__ == "__main__":
    run_script("multi30k_bpe_en_de.sh", __doc__, add_arguments, run)
