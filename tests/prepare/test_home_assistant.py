"""Held-out messages of the embedded corpus' task are in no text that a model reads."""

from collections import Counter

import pytest

from fairseq_mhe.prepare.config import SPLITS
from fairseq_mhe.prepare.corpora.home_assistant import TASK, documents, examples, read_rows


def test_a_message_is_in_one_set_once_and_not_in_the_text_if_held_out() -> None:
    rows = [(split, integration, english) for split, integration, english, _ in read_rows()]
    sets = examples(rows)
    messages = [message.lower() for pairs in sets.values() for message, _ in pairs]
    assert len(set(messages)) == len(messages)
    assert len(sets["dev"]) == pytest.approx(len(messages) / 10, abs=1)
    owners = {(message.lower(), label) for split, label, message in rows if split == "train"}
    for pairs in sets.values():
        of_sets = {message.lower() for message, _ in pairs}
        right = {(message.lower(), label) for message, label in pairs}
        assert right == {owner for owner in owners if owner[0] in of_sets}
        assert {label for _, label in pairs} == set(TASK.labels or ())
    chance = Counter(label for _, label in sets["dev"]).most_common(1)[0][1] / len(sets["dev"])
    assert 0.12 < chance < 0.15
    held_out = {message.lower() for message, _ in sets["dev"]}
    for split in SPLITS:
        lines = documents(rows, split, held_out)
        assert not held_out & {line.lower() for line in lines}
        assert len(lines) > 0.9 * len({message for where, _, message in rows if where == split})


def test_integrations_are_documents() -> None:
    texts = [("a", "One"), ("a", "Two"), ("b", "3")]
    rows = [("valid", "x", "-"), *(("train", *text) for text in texts)]
    assert documents(rows, "train", {"two"}) == ["", "One", "", "3"]
