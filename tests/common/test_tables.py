"""Tables, to the character."""

from fairseq_mhe.common.tables import align, csv_text

ROWS = [["one", "1", ""], ["the other", "1,000", "x"]]


def test_markdown() -> None:
    expected = """
| name      |   number |    |
|:----------|---------:|---:|
| one       |        1 |    |
| the other |    1,000 |  x |
"""
    assert align(["name", "number", ""], ROWS) == expected.strip("\n")


def test_latex_has_nothing_unescaped() -> None:
    text = align(["d_m", "%"], [["1_2", "50"]], latex=True)
    assert r"d\_m" in text
    assert r"1\_2" in text
    assert r"\toprule" in text


def test_csv() -> None:
    found = csv_text([{"a": 1, "b": "x, y"}, {"a": None, "b": ""}], ["b", "a"])
    assert found == 'b,a\n"x, y",1\n,\n'
