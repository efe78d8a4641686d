"""Tests of the faster fairseq-preprocess: byte for byte what fairseq's own writes."""

from __future__ import annotations

import re
import subprocess
import sys
from itertools import chain
from pathlib import Path

import pytest
from fairseq.data import Dictionary
from hypothesis import given
from hypothesis import strategies as st

from fairseq_mhe.prepare import preprocess

WORDS = st.lists(
    st.text(st.characters(blacklist_categories=["Z", "C"]), min_size=1, max_size=3), max_size=9
)


def binary(module: str, text: Path, out: Path, *options: str) -> dict[str, bytes]:
    words = [
        "--source-lang",
        "en",
        "--target-lang",
        "de",
        "--trainpref",
        "train",
        "--validpref",
        "valid",
    ]
    command = [
        sys.executable,
        "-m",
        module,
        *words,
        "--destdir",
        str(out),
        "--workers",
        "2",
        *options,
    ]
    subprocess.run(command, cwd=text, check=True, capture_output=True)
    return {path.name: path.read_bytes() for path in out.iterdir() if path.name != "preprocess.log"}


@pytest.mark.parametrize(
    "options", [["--joined-dictionary"], ["--nwordssrc", "30", "--thresholdtgt", "3"]]
)
def test_the_files_are_fairseqs(prepared: Path, tmp_path: Path, options: list[str]) -> None:
    """With a small dictionary there are unknown words, too."""
    text = prepared / "subword"
    theirs = binary("fairseq_cli.preprocess", text, tmp_path / "theirs", *options)
    ours = binary("fairseq_mhe.prepare.preprocess", text, tmp_path / "ours", *options)
    assert len(theirs) == 10
    assert ours == theirs
    theirs_says, ours_says = (
        (tmp_path / who / "preprocess.log").read_text() for who in ("theirs", "ours")
    )
    (summary,) = re.findall(r"\[en\] train\.en: .*", theirs_says)
    assert summary in ours_says


@given(st.lists(WORDS, min_size=1))
def test_counts_are_fairseqs(
    tmp_path_factory: pytest.TempPathFactory, lines: list[list[str]]
) -> None:
    path = tmp_path_factory.mktemp("text") / "a.en"
    path.write_text("".join(f"{' '.join(words)}\n" for words in lines), encoding="utf-8")
    theirs, ours = Dictionary(), Dictionary()
    Dictionary.add_file_to_dictionary(str(path), theirs, str.split, 1)
    preprocess.add_file_to_dictionary(str(path), ours, str.split, 1)
    for dictionary in (theirs, ours):
        dictionary.finalize()
    assert (ours.symbols, ours.count) == (theirs.symbols, theirs.count)


@given(st.lists(WORDS, min_size=1), st.sets(st.integers(0, 40)))
def test_numbers_are_fairseqs(lines: list[list[str]], known: set[int]) -> None:
    dictionary = Dictionary()
    for number, word in enumerate(word for words in lines for word in words):
        if number in known:
            dictionary.add_symbol(word)
    preprocess._numbers = preprocess.Numbers(dictionary)
    found = preprocess.number_text(
        "".join(f"{' '.join(words)}\n" for words in lines), preprocess.np.uint16
    )
    expected = [
        dictionary.encode_line(" ".join(words), add_if_not_exist=False).tolist() for words in lines
    ]
    assert preprocess.np.frombuffer(found.numbers, preprocess.np.uint16).tolist() == list(
        chain.from_iterable(expected)
    )
    assert found.lengths == [len(line) for line in expected]
    assert found.unknown.total() == sum(line.count(dictionary.unk()) for line in expected)
