"""The task of the embedded corpus is honest: held-out messages are nowhere in what is read."""

from __future__ import annotations

from collections import Counter

import pytest

from fairseq_mhe.prepare.corpora.home_assistant_language import (
    Row,
    documents,
    examples,
    read_messages,
)
from fairseq_mhe.prepare.tasks import TASKS


@pytest.fixture(scope="module")
def rows() -> list[Row]:
    """The whole table."""
    return read_messages()


def test_a_message_is_in_one_set_once(rows: list[Row]) -> None:
    found = examples(rows)
    messages = [message.lower() for pairs in found.values() for message, _ in pairs]
    assert len(set(messages)) == len(messages)
    assert len(found["dev"]) == pytest.approx(len(messages) / 10, abs=1)
    owners: dict[str, set[str]] = {}
    for split, integration, message in rows:
        if split == "train":
            owners.setdefault(message.lower(), set()).add(integration)
    for pairs in found.values():
        assert all(owners[message.lower()] == {label} for message, label in pairs)
        assert {label for _, label in pairs} == set(TASKS["integration"].labels or ())


def test_held_out_messages_are_not_in_the_text(rows: list[Row]) -> None:
    held_out = {message.lower() for message, _ in examples(rows)["dev"]}
    assert held_out
    for split in ("train", "valid", "test"):
        lines = documents(rows, split, held_out)
        assert not held_out & {line.lower() for line in lines}
        of_split = {message for where, _, message in rows if where == split}
        assert len(lines) > 0.9 * len(of_split)


def test_integrations_are_documents() -> None:
    rows = [("train", "a", "One"), ("train", "a", "Two"), ("valid", "x", "-"), ("train", "b", "3")]
    assert documents(rows, "train", {"two"}) == ["", "One", "", "3"]


def test_chance_is_what_is_told(rows: list[Row]) -> None:
    labels = Counter(label for _, label in examples(rows)["dev"])
    assert 0.12 < labels.most_common(1)[0][1] / labels.total() < 0.15
