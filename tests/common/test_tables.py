"""Each look of a table, to the character."""

from __future__ import annotations

import pytest

from fairseq_mhe.common.tables import Look, align, csv_text

ROWS = [["one", "1", ""], ["the other", "1,000", "x"]]
LOOKS: dict[Look, str] = {
    "tight": """
| name | number |  |
| :-- | --: | --: |
| one | 1 |  |
| the other | 1,000 | x |
""",
    "markdown": """
| name      | number |   |
|-----------|-------:|--:|
| one       |      1 |   |
| the other |  1,000 | x |
""",
    "wide": """
| name      |   number |    |
|:----------|---------:|---:|
| one       |        1 |    |
| the other |    1,000 |  x |
""",
}


@pytest.mark.parametrize("look", LOOKS)
def test_markdown(look: Look) -> None:
    assert align(["name", "number", ""], ROWS, look) == LOOKS[look].strip("\n")


def test_columns_to_the_left() -> None:
    assert align(["a", "b"], [["1", "2"]], left=(0, 1)) == "| a | b |\n| :-- | :-- |\n| 1 | 2 |"


def test_latex_has_nothing_unescaped() -> None:
    text = align(["d_m", "%"], [["1_2", "50"]], "latex")
    assert r"d\_m" in text
    assert r"1\_2" in text
    assert r"\toprule" in text


def test_csv() -> None:
    found = csv_text([{"a": 1, "b": "x, y"}, {"a": None, "b": ""}], ["b", "a"])
    assert found == 'b,a\n"x, y",1\n,\n'
