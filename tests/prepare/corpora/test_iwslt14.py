"""IWSLT14 on an archive of the same layout: what is text, what is held out, small letters."""

from __future__ import annotations

from pathlib import Path

from fairseq_mhe.common.files import sha256
from fairseq_mhe.prepare.config import SPLITS
from fairseq_mhe.prepare.corpora import iwslt14
from fairseq_mhe.prepare.corpora.iwslt14 import TEST, TRAIN, Iwslt14, training_sentences
from fairseq_mhe.prepare.corpora.known import count_warnings
from fairseq_mhe.prepare.manifest import read_manifest
from tests.fixtures.miniature import write_archive
from tests.fixtures.text import Pairs

SENTENCES = 92


def members(pairs: Pairs) -> dict[str, str]:
    """The archive's files: annotations, titles and sentences."""
    files = {}
    for side, lang in enumerate(Iwslt14.langs):
        title, *lines = [pair[1 - side] for pair in pairs]  # the corpus is English-German
        head = "<url>http://x</url>\n<keywords>talks, x</keywords>\n<talkid>7</talkid>\n"
        text = "".join(f" {line}\n" for line in lines[: SENTENCES - 1])
        files[TRAIN.format(lang=lang)] = f"{head}<title>{title}</title>\n{text}"
        for name, line in zip(TEST, lines[SENTENCES - 1 :], strict=False):
            seg = f'<mteval>\n<doc id="1">\n<seg id="1"> {line} </seg>\n</doc>\n'
            files[name.format(lang=lang)] = seg
    return files


def test_every_23rd_pair_is_valid_and_all_is_in_small_letters(
    tmp_path: Path, corpus: dict[str, Pairs]
) -> None:
    write_archive(tmp_path / "de-en.tgz", members(corpus["train"]))
    data = Iwslt14(
        out=tmp_path / "data", archives=tmp_path, vocab_size=100, workers=2
    ).prepare()
    german, english = (
        {split: (data / "raw" / f"{split}.{lang}").read_text().splitlines() for split in SPLITS}
        for lang in Iwslt14.langs
    )
    small = [(en.lower(), de.lower()) for en, de in corpus["train"]]
    assert german["test"] == [de for _, de in small[SENTENCES : SENTENCES + 5]]
    manifest = read_manifest(data)
    counts = manifest["steps"]["clean"]["counts"]["train"]
    clean = counts["kept"] + counts["held_out"]
    sizes = (len(english["valid"]), len(english["train"]))
    assert sizes == (clean // 23, clean - clean // 23)
    # The 23rd clean pair, not the 23rd pair.
    together = english["train"][:22] + english["valid"][:1]
    assert [en for en, _ in small[:SENTENCES] if en in together] == together
    tokens = (data / "tokenised" / "train.en").read_text(encoding="utf-8")
    assert tokens == tokens.lower()
    downloaded = read_manifest(data / "original")["steps"]["extract"]["counts"]
    assert downloaded == {"sha256": sha256(tmp_path / "de-en.tgz")}
    assert count_warnings(data)[0] == f"train has {sizes[1]} lines, known are 160,239"


def test_what_is_text() -> None:
    lines = ["<url>x</url>", "<title>A title</title>", "<description>TED: x</description>"]
    assert list(training_sentences([*lines, " A line <laughs>."])) == [
        "A title",
        "TED: x",
        " A line <laughs>.",
    ]
    lines = ["<doc>", '<seg id="12">  It\u2019s so.  </seg>', "</doc>"]
    assert list(iwslt14.test_sentences(lines)) == ["It's so."]
