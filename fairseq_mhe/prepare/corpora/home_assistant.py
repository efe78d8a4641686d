"""The embedded corpus, home-assistant/ beside this file: English-German pairs, and English alone.

The English side is also a text to pre-train on, and a task: from which of ten integrations is a
message? The task omits messages of several integrations; the text omits the task's dev set.
"""

import tempfile
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path

from fairseq_mhe.common.arguments import integer
from fairseq_mhe.prepare.config import SPLITS, vocabulary
from fairseq_mhe.prepare.corpora.known import PairCorpus, out_option
from fairseq_mhe.prepare.corpora.language import LanguageCorpus
from fairseq_mhe.prepare.parallel_text import prepare
from fairseq_mhe.prepare.task_folder import prepare_task
from fairseq_mhe.prepare.tasks import TASKS
from fairseq_mhe.prepare.text import read_lines, write_lines
from fairseq_mhe.prepare.text_processing import normalise

CORPUS = Path(__file__).with_name("home-assistant") / "pairs.tsv.bz2"
TASK = TASKS["integration"]
_HELD_OUT_PART = 10  # held-out sets have a tenth of --limit, or of the task's examples
Pairs = list[tuple[str, str]]
Row = tuple[str, str, str]  # split, integration, message


@dataclass(frozen=True)
class HomeAssistant(PairCorpus):
    """Prepare the embedded corpus: texts of Home Assistant's interface."""

    out: Path = out_option("runs/home-assistant-data")
    vocab_size: int = vocabulary(4000)
    limit: int | None = integer(
        None, "use N training pairs, and N/10 of valid and test each", _HELD_OUT_PART
    )

    def prepare(self) -> Path:
        """Make the data folder and return its path; raises UserError as `parallel_text.prepare`."""
        with tempfile.TemporaryDirectory() as folder:
            train, valid, test = (Path(folder) / f"{split}.tsv" for split in SPLITS)
            rows, limit = read_rows(), self.limit
            held_out = limit and limit // _HELD_OUT_PART
            for path in (train, valid, test):
                count = limit if path == train else held_out
                lines = ["\t".join(row[2:]) for row in rows if row[0] == path.stem]
                write_lines(path, lines[:count])
            texts = replace(self, train=(train,), valid=valid, test=test)
            return prepare(texts, {"corpus": "home-assistant"})


def read_rows() -> list[list[str]]:
    """Return [split, integration, English, German] of each pair."""
    _header, *rows = (line.split("\t") for line in read_lines(CORPUS))
    return rows


def examples(rows: Iterable[Row]) -> dict[str, Pairs]:
    """Return the task's pairs (message, integration) for train and dev; no message is in both."""
    messages: dict[str, str] = {}  # in lower case -> as first seen
    integrations: dict[str, set[str]] = defaultdict(set)  # of each lower-case message
    for split, integration, message in rows:
        if split == "train":
            messages.setdefault(message.lower(), message)
            integrations[message.lower()].add(integration)
    pairs = []
    for key, message in messages.items():
        integration, *others = integrations[key]
        if not others and integration in (TASK.labels or ()):
            pairs.append((message, integration))
    held_out = pairs[::_HELD_OUT_PART]
    del pairs[::_HELD_OUT_PART]
    return {"train": pairs, "dev": held_out}


def documents(rows: Iterable[Row], split: str, held_out: set[str]) -> list[str]:
    """Return a split's messages but for ``held_out``, with an empty line before an integration."""
    lines, previous = [], None
    for row_split, integration, message in rows:
        if row_split == split and message.lower() not in held_out:
            lines += [message] if integration == previous else ["", message]
            previous = integration
    return lines


def prepare_language(out: Path, block: int) -> tuple[Path, Path]:
    """Make the data folders of the text and the task, OUT/text and OUT/integration; return both."""
    rows = [(split, name, normalise(text)) for split, name, text, _ in read_rows()]
    sets = examples(rows)
    held_out = {message.lower() for message, _ in sets["dev"]}
    with tempfile.TemporaryDirectory() as folder:
        texts = [Path(folder) / f"{split}.txt" for split in SPLITS]
        for path in texts:
            write_lines(path, documents(rows, path.stem, held_out))
        for split, pairs in sets.items():
            table = [(*TASK.columns, TASK.label), *pairs]
            write_lines(Path(folder) / f"{split}.tsv", map("\t".join, table))
        corpus = LanguageCorpus(out=out / "text", vocab_size=4000, block=block)
        text = corpus.make("home_assistant, English", *texts)
        return text, prepare_task(TASK, Path(folder), text, out / TASK.name, block)
