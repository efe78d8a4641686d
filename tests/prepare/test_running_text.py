"""Running text becomes a data folder, from which fairseq reads the same text."""

from pathlib import Path
from typing import Any

import pytest
from fairseq.data import Dictionary, data_utils

from fairseq_mhe.prepare.corpora.language import PennTreebank, WikiText103
from fairseq_mhe.prepare.data_folder import open_data
from fairseq_mhe.prepare.manifest import TEXT, read_manifest
from fairseq_mhe.prepare.running_text import TextConfig, prepare_text
from fairseq_mhe.prepare.subword import join, split_long
from tests.fixtures.refusals import refuses
from tests.fixtures.text import read_corpus

SP = "sentencepiece"


@pytest.fixture(scope="module")
def text(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """600 English lines of the embedded corpus, in documents of 20, with needless white space."""
    lines = [pair[0] for pair in read_corpus()["train"][:600]]
    path = tmp_path_factory.mktemp("text") / "own text.txt"
    parts = ["\n".join(lines[start : start + 20]) for start in range(0, 600, 20)]
    path.write_text("\n\n" + "\n \n\n".join(parts).replace(" ", "  ") + "\n\n", encoding="utf-8")
    return path


def config(text: Path, out: Path, **options: Any) -> TextConfig:
    given = {"train": (text,), "hold_out": 10, "vocab_size": 300, "workers": 1, **options}
    return TextConfig(out=out, **given)


def read_back(out: Path, split: str, subword: str) -> list[str]:
    """Return the lines that fairseq reads, with subwords joined."""
    dictionary = Dictionary.load(str(out / "bin" / "dict.txt"))
    dataset = data_utils.load_indexed_dataset(str(out / "bin" / split), dictionary)
    return [join(dictionary.string(item), subword) for item in dataset]


@pytest.mark.parametrize("subword", ["bpe", "sentencepiece"])
def test_fairseq_reads_the_text_back(text: Path, tmp_path: Path, subword: str) -> None:
    out = prepare_text(config(text, tmp_path / "the data", subword=subword))
    written = [" ".join(line.split()) for line in text.read_text().split("\n")]
    expected = "\n".join(written).strip().split("\n\n\n")
    for split in ("train", "valid", "test"):
        held_out = {0: "valid", 1: "test"}
        numbers = [n for n in range(len(expected)) if held_out.get(n % 10, "train") == split]
        documents = [expected[number] for number in numbers]
        assert (out / "raw" / f"{split}.txt").read_text() == "\n\n".join(documents) + "\n"
        read, lines = read_back(out, split, subword), "\n\n".join(documents).split("\n")
        assert len(read) == len(lines)
        # BPE may split a held-out word into letters that are no subwords of train.
        pairs = [pair for pair in zip(read, lines, strict=True) if "<unk>" not in pair[0]]
        assert len(pairs) > 0.9 * len(lines)
        assert all(one == other for one, other in pairs)


def test_no_line_is_longer_than_a_block(text: Path, tmp_path: Path) -> None:
    """This also holds if the same folder had longer lines before."""
    whole, pieces = (
        read_back(prepare_text(config(text, tmp_path / "data", block=block)), "train", SP)
        for block in (512, 12)
    )
    assert len(pieces) > len(whole)
    assert "".join("".join(pieces).split()) == "".join("".join(whole).split())
    lines = (tmp_path / "data" / "subword" / "train.txt").read_text().split("\n")
    assert max(len(line.split()) for line in lines) == 10
    assert split_long("a b@@ c", 2, "bpe") == ["a", "b@@ c"], "no word is torn"


def test_new_text_is_processed_by_the_settings_of_the_folder(text: Path, tmp_path: Path) -> None:
    for hold_out, lowercase in ((10, False), (5, False), (5, True)):
        options = {"hold_out": hold_out, "lowercase": lowercase}
        out = prepare_text(config(text, tmp_path / "data", **options))
        held_out = (out / "raw" / "valid.txt").read_text()
        assert (held_out.count("\n\n"), held_out.islower()) == (30 // hold_out - 1, lowercase)
    processing = open_data(out, TEXT).processing
    subwords = processing.segment(["Turn  ON the light"])
    assert processing.plain(subwords) == ["turn on the light"]


@pytest.mark.parametrize("content", [b"\n \n\n", b"one\ndocument\n"])
def test_text_of_few_documents_is_refused(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "text.txt"
    path.write_bytes(content)
    with refuses(path, "empty"):
        prepare_text(config(path, tmp_path / "data"))
    assert not (tmp_path / "data" / "bin").exists()


def test_articles_and_files_become_documents(text: Path, tmp_path: Path) -> None:
    lines = [line for line in text.read_text().split("\n") if line.strip()]
    for split in ("train", "valid", "test"):
        articles = [f" = Article {n} = \n \n = = Part = = \n {lines[n]} \n" for n in range(60)]
        (tmp_path / f"wiki.{split}.tokens").write_text(" \n".join(articles))
        (tmp_path / f"ptb.{split}.txt").write_text("".join(f" {line} \n" for line in lines))
    options: Any = {"folder": tmp_path, "vocab_size": 150, "workers": 1}
    out = WikiText103(out=tmp_path / "wiki", **options).prepare()
    documents = (out / "raw" / "train.txt").read_text().split("\n\n")
    assert len(documents) == 60
    assert documents[3].startswith("= Article 3 =\n= = Part = =\n")
    out = PennTreebank(out=tmp_path / "ptb", **options).prepare()
    counts = read_manifest(out, TEXT)["steps"]["clean"]["counts"]["valid"]
    assert counts == {"kept": len(lines), "documents": 1}
