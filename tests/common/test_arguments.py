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


@pytest.mark.parametrize("text", ["0", "-1", "x", "", "1.5"])
def test_a_word_that_is_no_positive_number_is_rejected(text: str) -> None:
    for convert, word in ((positive, text), (positive_list, f"3,{text}")):
        with pytest.raises(ArgumentTypeError, match=f"'{text}' is not a whole number of at"):
            convert(word)
    with pytest.raises(ArgumentTypeError, match="not a number of at least 0"):
        number("-0.5")


@pytest.mark.parametrize("text", ["d", "a,d", ""])
def test_the_error_for_an_unknown_name_lists_the_known_ones(text: str) -> None:
    with pytest.raises(ArgumentTypeError, match="choose from a, b, all"):
        some_of(["a", "b"])(text)
