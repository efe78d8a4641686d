"""Lines are normalised, segmented, and restored."""

import json
import shutil
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from fairseq_mhe.prepare.data_folder import open_data
from fairseq_mhe.prepare.text_processing import TextProcessing, normalise
from fairseq_mhe.prepare.tokenise import detokeniser, tokeniser
from tests.fixtures.small_runs import SMALL


def test_line_breaks_of_every_kind_become_spaces() -> None:
    # Each of these ends a line for str.splitlines or for a file opened as text.
    assert normalise("a\rb\x0bc\x0cd\x1ce\x85f\u2028g\u2029h\u00a0i") == "a b c d e f g h i"
    assert normalise(" u\u0308ber\x07\ud83d ") == "über"
    assert normalise("u\x07\u0308ber") == "über"
    assert normalise("u\u0308\u2581b\u2581") == "ü b"  # SentencePiece's mark of a space
    line = "\u201eSo\u201c \u2013 Mr.\tX\u00a0\u202f5\u200b% \u00bd"
    assert normalise(line) == "\u201eSo\u201c \u2013 Mr. X 5\u200b% \u00bd"


@given(st.text())
def test_a_normalised_line_is_one_line_and_does_not_change(text: str) -> None:
    line = normalise(text)
    assert len(line.splitlines()) <= 1
    assert normalise(line) == line
    assert line.split() == line.split(" ") or line == ""


def test_joined_and_detokenised_subwords_give_raw_back(prepared: Path) -> None:
    data = open_data(prepared)
    for side, lang in enumerate(data.languages):
        raw = data.text("test", side).read_text(encoding="utf-8").splitlines()
        segmented = data.text("test", side, "subword").read_text(encoding="utf-8").splitlines()
        assert data.processing.segment(raw, side) == segmented
        if data.processing.tokenizer == "moses":  # Moses' rules do not restore every line
            raw = [detokeniser("moses", lang)(tokeniser("moses", lang)(line)) for line in raw]
        assert data.processing.plain(segmented, side) == raw


def test_a_folder_of_version_0_2_has_its_text_processing(tmp_path: Path) -> None:
    names = ("en", "de", "moses", "bpe")
    model = SMALL / "data" / "subword"
    assert open_data(SMALL / "data").processing == TextProcessing(*names, folder=model)
    folder = shutil.copytree(SMALL / "data", tmp_path / "data")
    manifest = json.loads((folder / "manifest.json").read_text())
    manifest["options"] |= {"punctuation": True, "lowercase": False}  # as version 0.3 has them
    (folder / "manifest.json").write_text(json.dumps(manifest))
    expected = TextProcessing(*names, punctuation=True, folder=folder / "subword")
    assert open_data(folder).processing == expected
