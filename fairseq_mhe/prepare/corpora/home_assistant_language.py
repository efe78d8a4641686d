"""The English side of the embedded corpus: text to pre-train on, and a task held out by message.

The task: to which of ten integrations a message of the interface belongs. A message is one example
however often it occurs; one that two integrations have is none. Every tenth is held out, and is not
in the text either.
"""

import tempfile
from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path

from fairseq_mhe.prepare.config import SPLITS
from fairseq_mhe.prepare.corpora.home_assistant import Pairs, read_rows
from fairseq_mhe.prepare.running_text import TextConfig, prepare_text
from fairseq_mhe.prepare.task_folder import prepare_task
from fairseq_mhe.prepare.tasks import TASKS
from fairseq_mhe.prepare.text import write_lines
from fairseq_mhe.prepare.text_processing import normalise

_TASK = TASKS["integration"]
_TASK_COLUMNS = ("message", "integration")
_HELD_OUT = 10  # every 10th message
#: Split, integration, message.
Row = tuple[str, str, str]


def read_messages() -> list[Row]:
    """The English messages, normalised, in their order."""
    return [
        (split, integration, normalise(english))
        for split, integration, english, _ in read_rows()
    ]


def examples(rows: Iterable[Row]) -> dict[str, Pairs]:
    """Train and dev: (message, integration), each message once in one of them."""
    owners: dict[str, set[str]] = defaultdict(set)
    written: dict[str, str] = {}
    for split, integration, message in rows:
        if split == "train":
            owners[message.lower()].add(integration)
            written.setdefault(message.lower(), message)
    sets: dict[str, Pairs] = {"train": [], "dev": []}
    number = 0
    for key, integrations in owners.items():
        (integration, *others) = sorted(integrations)
        if not others and integration in (_TASK.labels or ()):
            split = "train" if number % _HELD_OUT else "dev"
            sets[split].append((written[key], integration))
            number += 1
    return sets


def documents(rows: Iterable[Row], split: str, held_out: set[str]) -> list[str]:
    """The lines of a split without some messages, and an empty line before each integration."""
    lines: list[str] = []
    before = None
    for where, integration, message in rows:
        if where == split and message.lower() not in held_out:
            if integration != before:
                lines.append("")
            before = integration
            lines.append(message)
    return lines


def prepare_language(out: Path, block: int, vocab_size: int = 4000) -> tuple[Path, Path]:
    """The folders OUT/text and OUT/integration, or what of them is missing.

    Raises:
        UserError: as `prepare_text` and `prepare_task`.
    """
    rows = read_messages()
    sets = examples(rows)
    held_out = {message.lower() for message, _ in sets["dev"]}
    with tempfile.TemporaryDirectory() as place:
        texts = {split: Path(place) / f"{split}.txt" for split in SPLITS}
        for split, path in texts.items():
            write_lines(path, documents(rows, split, held_out))
        for split, pairs in sets.items():
            path = Path(place) / f"{_TASK.name}.{split}.tsv"
            write_lines(path, map("\t".join, [_TASK_COLUMNS, *pairs]))
        config = TextConfig(
            train=(texts["train"],),
            valid=texts["valid"],
            test=texts["test"],
            vocab_size=vocab_size,
            block=block,
            out=out / "text",
        )
        text = prepare_text(config, {"corpus": "home_assistant, English"})
        return text, prepare_task(_TASK, Path(place), text, out / _TASK.name, block)
