"""IWSLT14 on an archive of the same layout: what is text, what is held out, small letters."""

from __future__ import annotations

from pathlib import Path

import pytest

from fairseq_mhe.prepare.corpora import iwslt14
from fairseq_mhe.prepare.corpora.iwslt14 import TEST, TRAIN, Iwslt14, training_sentences
from fairseq_mhe.prepare.corpora.known import count_warnings
from fairseq_mhe.prepare.download import RemoteFile
from fairseq_mhe.prepare.manifest import read_manifest
from tests.fixtures.miniature import serve, write_archive
from tests.fixtures.text import Pairs

SENTENCES = 92


def members(pairs: Pairs) -> dict[str, str]:
    """The archive's files: annotations, titles and sentences."""
    made = {}
    for side, lang in enumerate(Iwslt14.langs):
        lines = [pair[1 - side] for pair in pairs[:SENTENCES]]  # the corpus is English-German
        head = [
            "<url>http://x</url>",
            "<keywords>talks, x</keywords>",
            "<talkid>7</talkid>",
            f"<title>{lines[0]}</title>",
        ]
        made[TRAIN.format(lang=lang)] = "".join(
            f"{line}\n" for line in [*head, *(f" {line}" for line in lines[1:])]
        )
        for number, name in enumerate(TEST):
            line = pairs[SENTENCES + number][1 - side]
            made[name.format(lang=lang)] = (
                f'<mteval>\n<doc id="1">\n<seg id="1"> {line} </seg>\n</doc>\n'
            )
    return made


@pytest.fixture
def file(tmp_path: Path, corpus: dict[str, Pairs]) -> RemoteFile:
    (tmp_path / "served").mkdir()
    write_archive(tmp_path / "served" / "de-en.tgz", members(corpus["train"]))
    return RemoteFile("http://127.0.0.1:9/de-en.tgz")


def test_every_23rd_pair_is_valid_and_all_is_in_small_letters(
    file: RemoteFile, tmp_path: Path, corpus: dict[str, Pairs]
) -> None:
    with serve(tmp_path / "served") as server:
        data = Iwslt14(
            out=tmp_path / "data", mirror=server.url, vocab_size=100, workers=2, file=file
        ).prepare()
    lines = {
        split: [
            (data / "raw" / f"{split}.{lang}").read_text(encoding="utf-8").splitlines()
            for lang in Iwslt14.langs
        ]
        for split in ("train", "valid", "test")
    }
    assert lines["test"][0] == [
        pair[1].lower() for pair in corpus["train"][SENTENCES : SENTENCES + 5]
    ]
    counts = read_manifest(data)["steps"]["clean"]["counts"]["train"]
    clean = counts["kept"] + counts["held_out"]
    assert (len(lines["valid"][0]), len(lines["train"][0])) == (clean // 23, clean - clean // 23)
    together = lines["train"][1][:22] + lines["valid"][1][:1]
    originals = [pair[0].lower() for pair in corpus["train"][:SENTENCES]]
    assert [
        line for line in originals if line in together
    ] == together  # the 23rd clean pair, not the 23rd pair
    tokens = (data / "tokenised" / "train.en").read_text(encoding="utf-8")
    assert tokens == tokens.lower()
    assert read_manifest(data)["source"]["archives"]["de-en.tgz"]
    assert "train has" in count_warnings(data)[0]
    assert "known are 160,239" in count_warnings(data)[0]


def test_what_is_text() -> None:
    lines = [
        "<url>x</url>",
        "<title>A title</title>",
        "<description>TED: x</description>",
        " A line <laughs>.",
    ]
    assert list(training_sentences(lines)) == ["A title", "TED: x", " A line <laughs>."]
    assert list(
        iwslt14.test_sentences(["<doc>", '<seg id="12">  It\u2019s so.  </seg>', "</doc>"])
    ) == ["It's so."]
