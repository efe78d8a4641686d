"""Options as plain values: what Python's eval gives for what is harmless, and nothing else."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairseq_mhe.common.literals import literal

NUMBERS = st.integers() | st.floats(allow_nan=False, allow_infinity=False)
VALUES = st.recursive(
    NUMBERS | st.text() | st.booleans() | st.none(),
    lambda parts: st.lists(parts) | st.tuples(parts, parts) | st.dictionaries(st.text(), parts),
    max_leaves=20,
)


@given(VALUES)
def test_what_python_writes_is_read(value: object) -> None:
    assert literal(repr(value)) == value


@pytest.mark.parametrize(
    "text",
    [
        "[(512, 3)] * 20",
        "[(512,10,5)] + [(512,3,2)] * 4 + [(512,2,2)] + [(512,2,2)]",
        "2 * [(64, 1)] + [[1, 2]]",
        "1e3,2e3",
        "(0.9, 0.98)",
        "1 / 2 - 0.25",
        " -3",
        "True",
        "10000 * 32768",
    ],
)
def test_what_fairseqs_options_say_is_what_eval_makes_of_it(text: str) -> None:
    assert literal(text) == eval(text.strip())  # noqa: S307 - the reference


@pytest.mark.parametrize(
    "text",
    [
        "__import__('os').abort()",
        "open('ran', 'w')",
        "[x for x in (1,)]",
        "lambda: 0",
        "a",
        "",
        "1 +",
        "[1] + 1",
        "1 / 0",
        "[0] * 100_000",
        "100_000 * 'x'",
        "9 ** 9",
        "(" * 500 + ")" * 500,
    ],
)
def test_nothing_else_is(text: str) -> None:
    with pytest.raises(ValueError):  # noqa: PT011 - in many words of Python's
        literal(text)
