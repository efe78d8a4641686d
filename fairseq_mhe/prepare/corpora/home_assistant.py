"""The embedded English-German corpus (home-assistant/ beside this file) as a data folder."""

import bz2
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from fairseq_mhe.common.arguments import at_least
from fairseq_mhe.prepare.config import SPLITS, option, vocabulary
from fairseq_mhe.prepare.corpora.known import PairCorpus, default_out
from fairseq_mhe.prepare.parallel_text import prepare
from fairseq_mhe.prepare.text import write_lines

CORPUS = Path(__file__).resolve().parent / "home-assistant" / "pairs.tsv.bz2"
Pairs = list[tuple[str, str]]
_HELD_OUT_PART = 10  # --limit's train pairs for each pair of valid and of test


@dataclass(frozen=True, kw_only=True)
class HomeAssistant(PairCorpus):
    """The embedded corpus: texts of Home Assistant's interface."""

    out: Path = default_out("runs/home-assistant-data")
    vocab_size: int = vocabulary(4000)
    # The table is clean; a German compound may well stand for five English words.
    max_ratio: float | None = None
    limit: int | None = option(
        None,
        "only N train pairs, and N/10 of valid and test",
        type=at_least(_HELD_OUT_PART),
        metavar="N",
    )

    def prepare(self) -> Path:
        """Make the data folder, or what of it is missing.

        Raises:
            UserError: as `parallel_text.prepare`.
        """
        with tempfile.TemporaryDirectory() as folder:
            train, valid, test = (Path(folder) / f"{split}.tsv" for split in SPLITS)
            corpus, most = read_corpus(), self.limit
            write_lines(train, map("\t".join, corpus["train"][:most]))
            most = most and most // _HELD_OUT_PART
            write_lines(valid, map("\t".join, corpus["valid"][:most]))
            write_lines(test, map("\t".join, corpus["test"][:most]))
            return prepare(replace(self, train=(train,), valid=valid, test=test))


def read_corpus(path: Path = CORPUS) -> dict[str, Pairs]:
    """Split -> its (English, German) pairs."""
    splits: dict[str, Pairs] = {split: [] for split in SPLITS}
    for split, _, english, german in read_rows(path):
        splits[split].append((english, german))
    return splits


def read_rows(path: Path = CORPUS) -> Iterator[list[str]]:
    """Split, integration, English and German of each pair."""
    with bz2.open(path, "rt", encoding="utf-8", newline="\n") as table:
        next(table)
        for line in table:
            yield line.rstrip("\n").split("\t")
