"""The embedded English-German corpus (home-assistant/ beside this file) as a data folder."""

import bz2
import tempfile
from dataclasses import dataclass
from pathlib import Path

from fairseq_mhe.common.arguments import option
from fairseq_mhe.common.errors import UserError
from fairseq_mhe.prepare.config import SPLITS, vocabulary
from fairseq_mhe.prepare.corpora.known import Corpus, default_out, run_corpus
from fairseq_mhe.prepare.progress import Report, silent
from fairseq_mhe.prepare.text import write_lines

CORPUS = Path(__file__).resolve().parent / "home-assistant" / "pairs.tsv.bz2"
_COLUMNS = ["split", "integration", "en", "de"]
_HELD_OUT_PART = 10  # of --limit's train pairs, one in so many for valid and for test


@dataclass(frozen=True, kw_only=True)
class HomeAssistant(Corpus):
    """The first ``limit`` train pairs of ``table``, and a tenth as many of valid and test."""

    script = "home_assistant_en_de.sh"

    out: Path = default_out("runs/home-assistant-data")
    vocab_size: int = vocabulary(4000)
    limit: int | None = option(
        None, "only N train pairs, and N/10 of valid and test", type=int, metavar="N"
    )
    table: Path = CORPUS

    def prepare(self, report: Report = silent) -> Path:
        """As `Corpus.prepare`."""
        if self.limit is not None and self.limit < _HELD_OUT_PART:
            raise UserError(
                f"a limit of {self.limit} pairs leaves nothing for valid and test; "
                f"use at least {_HELD_OUT_PART}"
            )
        splits = read_corpus(self.table)
        with tempfile.TemporaryDirectory() as place:
            prefixes = {split: Path(place) / split for split in SPLITS}
            for split, pairs in splits.items():
                most = self.limit
                if most is not None and split != "train":
                    most //= _HELD_OUT_PART
                for side, lang in enumerate(self.langs):
                    path = prefixes[split].with_suffix(f".{lang}")
                    write_lines(path, (pair[side] for pair in pairs[:most]))
            train, valid, test = prefixes.values()
            # The table is clean; a German compound may well stand for five English words.
            return self.make(report, [train], valid, test, max_ratio=None)


def read_corpus(path: Path) -> dict[str, list[tuple[str, str]]]:
    """Split -> (English, German) pairs of the compressed table.

    Raises:
        UserError: the table is missing, damaged, or another one.
    """
    try:
        text = bz2.decompress(path.read_bytes()).decode("utf-8")
    except FileNotFoundError:
        raise UserError(
            f"{path} is missing; it comes with fairseq-mhe: install that again"
        ) from None
    except (OSError, ValueError) as error:
        raise UserError(
            f"{path} is damaged ({error}); restore it, or install fairseq-mhe again"
        ) from error
    heading, *rows = [line.split("\t") for line in text.removesuffix("\n").split("\n")]
    splits: dict[str, list[tuple[str, str]]] = {split: [] for split in SPLITS}
    sound = heading == _COLUMNS
    for row in rows:
        sound = sound and len(row) == len(_COLUMNS) and row[0] in SPLITS
        if sound:
            splits[row[0]].append((row[2], row[3]))
    if not sound:
        raise UserError(f"{path} is not a table with the columns {', '.join(_COLUMNS)}")
    return splits


if __name__ == "__main__":
    run_corpus(HomeAssistant, __doc__)
