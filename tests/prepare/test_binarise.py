"""Tests of the binary form: fairseq's own, and read back it says what the subword files say."""

from __future__ import annotations

import re
import subprocess
import sys
from itertools import product
from pathlib import Path

import pytest
from fairseq.data import Dictionary, data_utils
from fairseq.tokenizer import tokenize_line
from hypothesis import given
from hypothesis import strategies as st

from fairseq_mhe.prepare.binarise import binarise
from fairseq_mhe.prepare.config import SPLITS
from fairseq_mhe.prepare.parallel_text import pair_texts

LANGS, DICTIONARIES = ("en", "de"), ("dict.en.txt", "dict.de.txt")
WORDS = st.lists(
    st.text(st.characters(blacklist_categories=["Z", "C"]), min_size=1, max_size=3), max_size=9
)


def test_the_files_are_those_of_fairseq_preprocess(
    prepared: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With blocks of a few lines, words that valid alone has, and an empty line."""
    monkeypatch.setattr("fairseq_mhe.prepare.binarise.BLOCK_BYTES", 1000)
    text = tmp_path / "text"
    text.mkdir()
    for path in (prepared / "subword").glob("t*.en"):
        for lang in ("en", "de"):
            words = path.with_suffix(f".{lang}").read_text(encoding="utf-8")
            (text / f"{path.stem}.{lang}").write_text(words, encoding="utf-8")
    for lang in ("en", "de"):
        (text / f"valid.{lang}").write_text("New words ü\n\n new , \u2028 ones </s>\n")
    options = [
        "--source-lang",
        "en",
        "--target-lang",
        "de",
        "--trainpref",
        "train",
        "--validpref",
        "valid",
    ]
    options += ["--testpref", "test", "--joined-dictionary", "--workers", "2"]
    subprocess.run(
        [
            sys.executable,
            "-m",
            "fairseq_cli.preprocess",
            *options,
            "--destdir",
            tmp_path / "theirs",
        ],
        cwd=text,
        check=True,
        capture_output=True,
    )
    theirs = contents(tmp_path / "theirs")
    said = theirs.pop("preprocess.log").decode()
    assert len(theirs) == 14
    for workers in (1, 2):
        out, log = tmp_path / f"ours {workers}", tmp_path / "logs" / f"binarise {workers}.log"
        binarise(texts_in(text), DICTIONARIES, out, workers, log)
        assert contents(out) == theirs
        for line in log.read_text().splitlines()[1:]:
            name, sentences, tokens, unknown = re.fullmatch(  # type: ignore[union-attr]
                r"(\S+): (\d+) lines, (\d+) tokens, (\d+) unknown", line
            ).groups()
            percent = f"{100 * int(unknown) / int(tokens):.3}"
            assert f"{name}: {sentences} sents, {tokens} tokens, {percent}% replaced" in said


def texts_in(folder: Path) -> dict[str, Path]:
    texts = pair_texts(LANGS, "").items()
    return {name: Path(f"{folder}{text}") for name, text in texts}


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


@given(st.lists(WORDS, min_size=1))
def test_the_dictionary_is_fairseqs(
    tmp_path_factory: pytest.TempPathFactory, lines: list[list[str]]
) -> None:
    folder = tmp_path_factory.mktemp("text")
    for split, lang in product(SPLITS, ("en", "de")):
        text = "".join(f"{' '.join(words)}\n" for words in lines)
        (folder / f"{split}.{lang}").write_text(text, encoding="utf-8")
    theirs = Dictionary()
    for lang in ("en", "de"):
        path = str(folder / f"train.{lang}")
        Dictionary.add_file_to_dictionary(path, theirs, tokenize_line, 1)
    theirs.finalize()
    binarise(texts_in(folder), DICTIONARIES, folder / "bin", 1, folder / "log")
    ours = Dictionary.load(str(folder / "bin" / "dict.en.txt"))
    assert ours.symbols == theirs.symbols
    assert ours.count[ours.nspecial :] == theirs.count[theirs.nspecial :]
    dataset = data_utils.load_indexed_dataset(str(folder / "bin" / "valid.en-de.de"), ours)
    expected = [theirs.encode_line(" ".join(words), add_if_not_exist=False) for words in lines]
    assert [line.tolist() for line in dataset] == [line.tolist() for line in expected]
