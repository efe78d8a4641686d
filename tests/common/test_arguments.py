"""Converters accept valid words, and reject others with a message that says what is valid."""

from argparse import ArgumentTypeError

import pytest

from fairseq_mhe.common.arguments import Parser, at_least, number, positive, positive_list, some_of


def test_valid_words_are_converted() -> None:
    assert at_least(16)("16") == 16
    assert positive_list("3,1,03") == [3, 1], "each once, however it is written"
    assert some_of(["a", "b", "c"])("c,a,c") == ["c", "a"]
    assert some_of({"a": 1, "b": 2})("all") == ["a", "b"]


def test_an_option_given_twice_collects_all_values() -> None:
    parser = Parser()
    parser.add_argument("files", nargs="+")
    parser.add_argument("--several", nargs="+", type=int, default=[])
    args = parser.parse_args(["a", "b", "--several", "1", "2", "--several", "3"])
    assert (args.files, args.several) == (["a", "b"], [1, 2, 3])
    assert parser.parse_args(["a"]).several == []


@pytest.mark.parametrize(
    ("convert", "words", "advice"),
    [
        (positive, ["0", "-1", "x", "", "1.5"], "at least 1"),
        (positive_list, ["3,0", "3,x", "3,"], "at least 1"),
        (number, ["-0.5", "nan", "x"], "at least 0"),
        (some_of(["a", "b"]), ["d", "a,d", ""], "a, b, all"),
    ],
)
def test_other_words_are_refused_with_what_is_valid(
    convert: object, words: list[str], advice: str
) -> None:
    assert callable(convert)
    for word in words:
        with pytest.raises(ArgumentTypeError, match=advice):
            convert(word)
