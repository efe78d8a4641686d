"""Subword models equal subword-nmt's, are reproducible, and lose nothing of a text."""

import io
from collections import Counter
from collections.abc import Iterable
from pathlib import Path

import pytest
from subword_nmt.apply_bpe import BPE
from subword_nmt.learn_bpe import learn_bpe

from fairseq_mhe.prepare import subword
from fairseq_mhe.prepare.subword import SubwordModel, join, learn_sentencepiece, segment
from fairseq_mhe.prepare.text import write_lines
from tests.fixtures.refusals import refuses
from tests.fixtures.text import Pairs


def counted(lines: Iterable[str]) -> Counter[str]:
    return Counter(word for line in lines for word in line.split())


@pytest.fixture(scope="module")
def lines(corpus: dict[str, Pairs]) -> list[str]:
    return [side for pair in corpus["train"][:500] for side in pair]


@pytest.mark.parametrize("cached", [500_000, 5])
def test_bpe_equals_subword_nmt(
    tmp_path: Path, lines: list[str], monkeypatch: pytest.MonkeyPatch, cached: int
) -> None:
    """The reference is subword-nmt, which learns from the text and segments it."""
    monkeypatch.setattr("fairseq_mhe.prepare.subword.CACHED_WORDS", cached)
    codes = io.StringIO()
    learn_bpe(io.StringIO("\n".join(lines)), codes, 100)
    subword.learn_bpe_model(counted(lines), 100, tmp_path / "codes")
    assert (tmp_path / "codes").read_text(encoding="utf-8") == codes.getvalue()
    expected = [BPE(codes).process_line(line) for line in lines]
    assert [join(line, "bpe") for line in expected] == lines
    text = "".join(f"{line}\n" for line in lines).encode()
    segmented = subword.segment_text(text, SubwordModel("bpe", tmp_path / "codes"))
    assert segmented.decode() == "".join(f"{line}\n" for line in expected)


def test_marks_and_special_symbols_in_the_text_are_ordinary_words(tmp_path: Path) -> None:
    """BPE learns such words whole; they come back, and no subword is a symbol of fairseq."""
    text = "runs@@ runs <s> </s> a<unk> <pad>b <mask> @@ a@@@ @"
    subword.learn_bpe_model(counted([text] * 9), 200, tmp_path / "codes")
    (line,) = segment([text], SubwordModel("bpe", tmp_path / "codes"))
    assert join(line, "bpe") == text
    assert subword.SPECIAL_SYMBOLS.isdisjoint(line.split())
    assert "<pad>b" in line.split()


def test_sentencepiece_is_reproducible_and_loses_nothing(tmp_path: Path, lines: list[str]) -> None:
    write_lines(tmp_path / "text", lines)
    for name in ("one", "two"):
        learn_sentencepiece([tmp_path / "text"], 300, tmp_path / name)
    assert (tmp_path / "one").read_bytes() == (tmp_path / "two").read_bytes()
    # These characters are not in the training text, or normalisation (NFKC) would change them.
    odd = [*lines, "½ … ﬁ ² ① 漢字 🙂", "e\u0301"]
    segmented = segment(odd, SubwordModel("sentencepiece", tmp_path / "one"))
    assert [join(line, "sentencepiece") for line in segmented] == odd
    assert len({piece for line in segmented for piece in line.split(" ")}) < 300 + 20


def test_sentencepiece_learns_from_lines_of_any_length(tmp_path: Path, lines: list[str]) -> None:
    """SentencePiece itself skips lines of over 4,192 bytes, with and without spaces."""
    write_lines(tmp_path / "text", ["zebra" * 1000])
    learn_sentencepiece([tmp_path / "text"], 30, tmp_path / "model")
    (line,) = segment(["zebra" * 9], SubwordModel("sentencepiece", tmp_path / "model"))
    assert len(line.split()) < len("zebra" * 9) / 2
    counts = []
    for name, text in (("whole", [" ".join(lines)]), ("lines", lines)):
        write_lines(tmp_path / "text", text)
        learn_sentencepiece([tmp_path / "text"], 300, tmp_path / name)
        subwords = segment(lines, SubwordModel("sentencepiece", tmp_path / name))
        counts.append(sum(len(line.split()) for line in subwords))
    assert counts[0] == pytest.approx(counts[1], rel=0.02)


def test_text_without_subwords_to_learn_is_refused(tmp_path: Path, lines: list[str]) -> None:
    with refuses("to learn BPE from"):
        subword.learn_bpe_model(counted(["a b", "c"]), 10, tmp_path / "codes")
    write_lines(tmp_path / "text", lines)
    with refuses("5 pieces", "--vocab-size"):
        learn_sentencepiece([tmp_path / "text"], 5, tmp_path / "model")


def test_join_equals_fairseqs_remove_bpe() -> None:
    """The expected text is what `--remove-bpe` and `--remove-bpe sentencepiece` give."""
    assert join("ein@@ fach so , a@@ b@@ c", "bpe") == "einfach so , abc"
    assert join("cut off@@", "bpe") == "cut off"
    assert join("▁ein fach ▁so , ▁a b", "sentencepiece") == "einfach so, ab"
