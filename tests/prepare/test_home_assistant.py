"""The task made of the embedded corpus has no leak between its sets, or into the text."""

import pytest

from fairseq_mhe.prepare.config import SPLITS
from fairseq_mhe.prepare.corpora.home_assistant import TASK, documents, examples, read_rows


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
    held_out = {message.lower() for message, _ in sets["dev"]}
    for split in SPLITS:
        lines = documents(rows, split, held_out)
        assert not held_out & {line.lower() for line in lines}
        assert len(lines) > 0.9 * len({message for where, _, message in rows if where == split})
