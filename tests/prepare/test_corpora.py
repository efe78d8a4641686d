"""The known corpora in miniature, from published files to data folders."""

import gzip
from collections.abc import Iterator
from pathlib import Path
from unittest.mock import Mock

import pytest

from fairseq_mhe.common.files import sha256
from fairseq_mhe.prepare.config import SPLITS
from fairseq_mhe.prepare.corpora import multi30k
from fairseq_mhe.prepare.corpora.iwslt14 import Iwslt14
from fairseq_mhe.prepare.corpora.known import KNOWN
from fairseq_mhe.prepare.corpora.multi30k import NAMES, Multi30k, Multi30kBpe
from fairseq_mhe.prepare.corpora.wmt14 import PREFIXES, copy_from_sacrebleu
from fairseq_mhe.prepare.data_folder import open_data
from fairseq_mhe.prepare.manifest import read_manifest
from tests.fixtures import miniature as mini
from tests.fixtures.miniature import Miniature, Server, remote_file, serve, write_archive
from tests.fixtures.refusals import refuses
from tests.fixtures.text import Pairs, sides
from tests.prepare.test_parallel_text import times

Capture = pytest.CaptureFixture[str]
Patch = pytest.MonkeyPatch

LANGS = ("en", "de")


@pytest.fixture
def miniature(tmp_path: Path) -> Miniature:
    return mini.make_miniature(tmp_path / "a miniature")


@pytest.fixture
def server(miniature: Miniature) -> Iterator[Server]:
    """A server of the files in ``miniature.archives``."""
    with serve(miniature.archives) as running:
        yield running


def lines_of(data: Path, name: str) -> list[str]:
    return (data / name).read_text(encoding="utf-8").splitlines()


def test_wmt14_from_archives_to_data(
    miniature: Miniature, server: Server, tmp_path: Path, capsys: Capture
) -> None:
    """raw/ keeps the quotes of the test set; the text for the model has plain quotes."""
    for lang in LANGS:
        with (miniature.newstest / f"newstest2014.{lang}").open("a") as stream:
            stream.write("„So“ \u2013 das…\n")
    data = miniature.prepare(tmp_path / "data", server.url, vocab_size=300)
    manifest = read_manifest(data)
    assert (manifest["state"], manifest["text_spec"]["punctuation"]) == ("complete", True)
    names = [Path(file["url"]).name for file in miniature.files]
    assert [path for path, _ in server.requests] == [f"/{name}" for name in names]
    assert manifest["steps"]["clean"]["counts"]["train"]["read"] == 900
    for lang in LANGS:
        text = (miniature.newstest / f"newstest2014.{lang}").read_text()
        assert (data / "raw" / f"test.{lang}").read_text() == text
    assert lines_of(data, "tokenised/test.de")[-1] == '" So " - das ...'
    assert "warning: valid has 20 lines instead of 3,000\n" in capsys.readouterr().err
    before = times(data)
    assert times(miniature.prepare(data, server.url, vocab_size=300)) == before


def test_an_archive_without_a_side_is_refused_and_unpacks_nothing(
    miniature: Miniature, server: Server, tmp_path: Path
) -> None:
    path = miniature.archives / Path(miniature.files[0]["url"]).name
    write_archive(path, {f"{PREFIXES[0]}.en": "a\n"})
    miniature.files[0] = remote_file(path)
    with refuses("nowhere/newstest2013.en"):
        miniature.prepare(tmp_path / "data", server.url, newstest=Path("nowhere"))
    assert not server.requests
    with refuses("europarl-v7.tgz", f"{PREFIXES[0]}.de"):
        miniature.prepare(tmp_path / "data", server.url)
    remaining = [path.name for path in (tmp_path / "data" / "original").iterdir()]
    assert sorted(remaining) == [".lock", "archives"]


def test_newstest_comes_from_sacrebleu(tmp_path: Path, monkeypatch: Patch) -> None:
    def put(test_set: str, langs: str) -> str:
        assert langs == "en-de"
        path = tmp_path / test_set.replace("/", "-")
        path.write_text(test_set)
        return str(path)

    monkeypatch.setattr("sacrebleu.get_source_file", put)
    monkeypatch.setattr("sacrebleu.get_reference_files", lambda *words: [put(*words)])
    folder = copy_from_sacrebleu(tmp_path)
    assert lines_of(folder, "newstest2013.de") == ["wmt13"]
    assert lines_of(folder, "newstest2014.en") == ["wmt14/full"]

    broken = Mock(side_effect=OSError("<urlopen error [Errno -2] Name or service not known>"))
    monkeypatch.setattr("sacrebleu.get_source_file", broken)
    with refuses("test set wmt13", "not known", "--newstest"):
        copy_from_sacrebleu(tmp_path)


def test_iwslt14_is_lower_case_and_every_23rd_clean_pair_is_valid(
    tmp_path: Path, corpus: dict[str, Pairs], capsys: Capture
) -> None:
    """The archive is there already; it has annotations, titles and sentences."""
    train, *test = KNOWN["iwslt14"]["members"]
    sentences, pairs, members = 92, corpus["train"], {}
    for side, lang in enumerate(LANGS):
        title, *lines = [pair[side] for pair in pairs]
        head = "<url>http://x</url>\n<keywords>talks, x</keywords>\n<talkid>7</talkid>\n"
        text = "".join(f" {line}\n" for line in lines[: sentences - 1])
        members[train.format(lang=lang)] = f"{head}<title>{title}</title>\n{text}"
        for name, line in zip(test, lines[sentences - 1 :], strict=False):
            seg = f'<mteval>\n<doc id="1">\n<seg id="1"> {line} </seg>\n</doc>\n'
            members[name.format(lang=lang)] = seg
    archives = tmp_path / "data" / "original" / "archives"
    archives.mkdir(parents=True)
    write_archive(archives / "de-en.tgz", members)
    data = Iwslt14(out=tmp_path / "data", vocab_size=100, workers=2).prepare()
    small = [(en.lower(), de.lower()) for en, de in pairs]
    assert lines_of(data, "raw/test.de") == [de for _, de in small[sentences : sentences + 5]]
    counts = read_manifest(data)["steps"]["clean"]["counts"]["train"]
    clean = counts["kept"] + counts["held_out"]
    train, valid = (lines_of(data, f"raw/{split}.en") for split in ("train", "valid"))
    assert (len(valid), len(train)) == (clean // 23, clean - clean // 23)
    record = read_manifest(data / "original")["steps"]["extract"]
    assert record["counts"] == {"de-en.tgz": sha256(archives / "de-en.tgz")}
    # Every 23rd clean pair is held out, not every 23rd pair of the archive.
    together = train[:22] + valid[:1] + train[22:24]
    assert [en for en, _ in small[:sentences] if en in together] == together
    assert open_data(data).languages == ("de", "en")
    warning = f"warning: train has {len(train)} lines instead of 160,239\n"
    assert warning in capsys.readouterr().err


def test_multi30k_is_made_from_the_verified_archives(
    corpus: dict[str, Pairs], tmp_path: Path, monkeypatch: Patch
) -> None:
    served, archives = tmp_path / "served", tmp_path / "data" / "original" / "archives"
    served.mkdir()
    archives.mkdir(parents=True)
    for split, name in zip(SPLITS, NAMES, strict=True):
        for side, text in sides(name, corpus[split][:60]).items():
            (served / f"{side}.gz").write_bytes(gzip.compress(text.encode()))
            (archives / side).write_text("another text\n" * 60)
    known = KNOWN["multi30k"]
    files = [remote_file(served / Path(file["url"]).name) for file in known["files"]]
    monkeypatch.setitem(known, "files", files)
    with serve(served) as server:
        out = tmp_path / "data"
        data = Multi30k(out=out, mirror=server.url, vocab_size=100, workers=1).prepare()
    for split in SPLITS:
        texts = [lines_of(data, f"raw/{split}.{lang}") for lang in LANGS]
        assert list(zip(*texts, strict=True)) == corpus[split][:60]


def test_raw_equals_the_embedded_pairs(prepared: Path, corpus: dict[str, Pairs]) -> None:
    for split, size in zip(SPLITS, (300, 30, 30), strict=True):
        sides = [lines_of(prepared, f"raw/{split}.{lang}") for lang in LANGS]
        assert list(zip(*sides, strict=True)) == corpus[split][:size]


EN = ["a boy &apos;s dog ru@@ ns .", "two gir@@ ls , one hat"]
DE = ["der hund eines jun@@ gen ren@@ nt .", "zwei mä@@ dchen &amp; ein hut"]


def test_published_subwords_stay_and_raw_is_detokenised(
    tmp_path: Path, monkeypatch: Patch, capsys: Capture
) -> None:
    for lang, lines in (("en", EN), ("de", DE)):
        text = gzip.compress("".join(f"{line}\n" for line in lines).encode())
        for split in SPLITS:
            (tmp_path / f"{split}.{lang}.gz").write_bytes(text)
    monkeypatch.setattr(multi30k, "BPE_NAMES", dict(zip(SPLITS, SPLITS, strict=True)))
    corpus = Multi30kBpe(folder=tmp_path, out=tmp_path / "out")
    corpus.prepare()  # without merges, which the next call adds
    (tmp_path / "code.gz").write_bytes(gzip.compress(b"#version: 0.2\nr u\n"))
    data = open_data(corpus.prepare())
    assert data.processing.lowercase
    assert "train has 2 lines instead of 29,000" in capsys.readouterr().err
    assert lines_of(data.folder, "subword/test.en") == EN
    assert lines_of(data.folder, "raw/test.en") == ["a boy's dog runs.", "two girls, one hat"]
    assert lines_of(data.folder, "raw/valid.de")[1] == "zwei mädchen & ein hut"
    assert data.processing.plain(DE) == lines_of(data.folder, "raw/test.de")
    assert data.processing.plain(EN)[0] == "a boy 's dog runs."  # only English has this ending
    tokens = ["der hund eines jungen rennt .", "zwei mädchen &amp; ein hut"]
    assert data.processing.given_tokens(DE) == tokens
    assert data.processing.segment(["a boy's"]) == ["a b@@ o@@ y &@@ a@@ p@@ o@@ s@@ ;@@ s"]
    before = times(data.folder)
    assert times(corpus.prepare()) == before
