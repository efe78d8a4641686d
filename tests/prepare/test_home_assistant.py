"""The embedded corpus has no leak between its splits, into its task, or into the task's text."""

import bz2
import os
import subprocess
import sys
import unicodedata
from collections import Counter, defaultdict
from pathlib import Path

import pytest

from fairseq_mhe.prepare.config import SPLITS
from fairseq_mhe.prepare.corpora.home_assistant import CORPUS, TASK, documents, examples, read_rows

FOLDER = Path(__file__).resolve().parents[2] / "data-prep" / "home-assistant"
WHEEL = os.environ.get("FAIRSEQ_MHE_HA_WHEEL", "")


def letters(text: str) -> str:
    return "".join(char for char in text.casefold() if unicodedata.category(char).startswith("L"))


@pytest.mark.skipif(not WHEEL, reason="FAIRSEQ_MHE_HA_WHEEL does not name the wheel")
def test_by_hand_the_committed_files_are_made_again_byte_for_byte(tmp_path: Path) -> None:
    command = [sys.executable, FOLDER / "extract.py", WHEEL, "--out", tmp_path]
    subprocess.run(command, check=True, capture_output=True)
    for name in ("pairs.tsv.bz2", "LICENSE.txt"):
        assert (tmp_path / name).read_bytes() == (CORPUS.parent / name).read_bytes()


def test_no_held_out_side_and_no_family_occurs_in_another_split() -> None:
    rows = read_rows()
    for column in (2, 3):
        sides = defaultdict(list)
        for row in rows:
            sides[row[0]].append(letters(row[column]))
        assert not set(sides["train"]) & set(sides["valid"] + sides["test"])
        assert not set(sides["valid"]) & set(sides["test"])
        for held_out in ("valid", "test"):
            assert len(set(sides[held_out])) == len(sides[held_out])
    splits = {(row[1].split("_")[0], row[0]) for row in rows}
    assert len(splits) == len({family for family, _ in splits})


def test_the_readme_has_the_right_numbers() -> None:
    readme = (FOLDER / "README.md").read_text(encoding="utf-8")
    assert f"{CORPUS.stat().st_size:,} bytes" in readme
    rows = read_rows()
    assert f"{len(rows):,} English-German pairs" in readme
    assert bz2.decompress(CORPUS.read_bytes()).count(b"\n") == len(rows) + 1
    for split in SPLITS:
        chosen = [row for row in rows if row[0] == split]
        english, german = (sum(len(row[column].split()) for row in chosen) for column in (2, 3))
        integrations = len({row[1] for row in chosen})
        line = next(line for line in readme.splitlines() if line.startswith(f"| {split} |"))
        assert line.startswith(f"| {split} | {len(chosen):,} (of ")
        assert f"| {integrations} | {english:,} / {german:,} |" in line


def test_a_message_is_in_one_set_once_and_not_in_the_text_if_held_out() -> None:
    rows = [(split, integration, english) for split, integration, english, _ in read_rows()]
    sets = examples(rows)
    messages = [message.lower() for pairs in sets.values() for message, _ in pairs]
    assert len(set(messages)) == len(messages)
    assert len(sets["dev"]) == pytest.approx(len(messages) / 10, abs=1)
    train = {(message.lower(), label) for split, label, message in rows if split == "train"}
    for pairs in sets.values():
        labelled = {(message.lower(), label) for message, label in pairs}
        texts = {message for message, _ in labelled}
        assert labelled == {pair for pair in train if pair[0] in texts}  # no message has two labels
        assert {label for _, label in pairs} == set(TASK.labels or ())
    (_, most_common), *_ = Counter(label for _, label in sets["dev"]).most_common()
    assert 0.12 < most_common / len(sets["dev"]) < 0.15  # the accuracy of one constant answer
    held_out = {message.lower() for message, _ in sets["dev"]}
    for split in SPLITS:
        lines = documents(rows, split, held_out)
        assert not held_out & {line.lower() for line in lines}
        assert len(lines) > 0.9 * len({message for where, _, message in rows if where == split})
