"""Text that others have preprocessed is taken as it is, and undone for people to read."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest

from fairseq_mhe.common.errors import UserError
from fairseq_mhe.prepare.corpora import multi30k_bpe
from fairseq_mhe.prepare.corpora.known import run_corpus
from fairseq_mhe.prepare.corpora.multi30k_bpe import Multi30kBpe
from fairseq_mhe.prepare.data_folder import open_data
from fairseq_mhe.prepare.parallel_text import prepare_segmented

EN = ["a boy &apos;s dog ru@@ ns .", "two gir@@ ls , one hat"]
DE = ["der hund eines jun@@ gen ren@@ nt .", "zwei mä@@ dchen &amp; ein hut"]
SPLITS = ("train", "valid", "test")


def write(folder: Path, en: list[str] = EN, de: list[str] = DE) -> dict[str, Path]:
    for split in SPLITS:
        for lang, lines in (("en", en), ("de", de)):
            text = "".join(f"{line}\n" for line in lines).encode()
            (folder / f"{split}.{lang}.gz").write_bytes(gzip.compress(text))
    return {split: folder / split for split in SPLITS}


def test_the_subwords_stay_and_the_text_is_what_a_person_writes(tmp_path: Path) -> None:
    (tmp_path / "code").write_text("#version: 0.2\nr u\n")
    out = prepare_segmented(
        write(tmp_path), ("en", "de"), tmp_path / "out", codes=tmp_path / "code"
    )
    data = open_data(out)
    assert data.segmented("test", 0).read_text().splitlines() == EN
    assert data.text("test", 0).read_text().splitlines() == [
        "a boy's dog runs.",
        "two girls, one hat",
    ]
    assert data.text("valid", 1).read_text().splitlines()[1] == "zwei mädchen & ein hut"
    assert data.detokenise(DE) == data.text("test", 1).read_text().splitlines()
    assert data.given_tokens(DE) == [
        "der hund eines jungen rennt .",
        "zwei mädchen &amp; ein hut",
    ]
    assert data.processing().segment(["a boy's hat"]) == [
        "a b@@ o@@ y &@@ a@@ p@@ o@@ s@@ ;@@ s h@@ a@@ t"
    ]
    before = {path: path.stat().st_mtime_ns for path in (out / "bin").iterdir()}
    prepare_segmented(write(tmp_path), ("en", "de"), out, codes=tmp_path / "code")
    assert {path: path.stat().st_mtime_ns for path in (out / "bin").iterdir()} == before


def test_misaligned_sides_are_refused(tmp_path: Path) -> None:
    texts = write(tmp_path, en=[*EN, "more"])
    with pytest.raises(UserError, match=r"train\.en\.gz has 3 lines, train\.de\.gz has 2"):
        prepare_segmented(texts, ("en", "de"), tmp_path / "out")
    assert not (tmp_path / "out" / "subword").exists()


def test_multi30ks_names(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(multi30k_bpe, "NAMES", {split: split for split in SPLITS})
    write(tmp_path)
    words = ["multi30k_bpe", "--folder", str(tmp_path), "--out", str(tmp_path / "out")]
    monkeypatch.setattr("sys.argv", words)
    with pytest.raises(SystemExit, match="0"):
        run_corpus("multi30k_bpe", Multi30kBpe, Multi30kBpe.prepare, "")
    printed = capsys.readouterr()
    assert printed.out.strip() == str(tmp_path / "out")
    assert "train has 2 lines, known are 29,000" in printed.err
    assert open_data(tmp_path / "out").manifest["options"] == {"lowercase": True}
