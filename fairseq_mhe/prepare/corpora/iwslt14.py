"""IWSLT14 German-English (TED talks; Cettolo et al. 2014), prepared as by fairseq's recipe, as a
data folder."""

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from fairseq_mhe.common.files import sha256
from fairseq_mhe.prepare.archive import extract
from fairseq_mhe.prepare.config import vocabulary
from fairseq_mhe.prepare.corpora.known import Corpus, Downloads, default_out, run_corpus
from fairseq_mhe.prepare.download import RemoteFile
from fairseq_mhe.prepare.manifest import DOWNLOADED, Counts, open_manifest
from fairseq_mhe.prepare.progress import Report, silent
from fairseq_mhe.prepare.text import aligned_lines, read_lines, write_lines

_MAX_TOKENS = 175
_HOLD_OUT = 23  # every 23rd clean training pair is valid
_LINES = {"train": 160_239, "valid": 7283, "test": 6750}
TRAIN = "de-en/train.tags.de-en.{lang}"
TEST = tuple(
    f"de-en/IWSLT14.{name}.de-en.{{lang}}.xml"
    for name in ("TED.dev2010", "TEDX.dev2012", "TED.tst2010", "TED.tst2011", "TED.tst2012")
)
# Its checksum is not published: that of the download is recorded, and counts of lines are compared.
_ARCHIVE = RemoteFile("http://dl.fbaipublicfiles.com/fairseq/data/iwslt14/de-en.tgz")
_NO_TEXT = ("<url>", "<talkid>", "<keywords>")
_MARKS = re.compile(r"</?(?:title|description)>")
_SEGMENT = re.compile(r'<seg id="[0-9]*">\s*(.*?)\s*</seg>')


@dataclass(frozen=True, kw_only=True)
class Iwslt14(Downloads, Corpus):
    """The talks of the archive ``file``."""

    script = "iwslt14_de_en.sh"
    langs = ("de", "en")

    out: Path = default_out("runs/iwslt14-data")
    vocab_size: int = vocabulary(10000)
    file: RemoteFile = _ARCHIVE

    def prepare(self, report: Report = silent) -> Path:
        """As `Corpus.prepare`."""

        def action(work: Path) -> Counts:
            (archive,) = self.obtained([self.file], self.original, report)
            self._extract(archive, work)
            return {"sha256": sha256(archive)}

        made_from = {"archive": self.file.name, "sha256": self.file.sha256}
        with open_manifest(self.original, {**DOWNLOADED, "corpus": "iwslt14"}) as manifest:
            extracted = manifest.run("extract", made_from, action)
            manifest.complete()
        source = {
            "corpus": "iwslt14",
            "archives": {self.file.name: extracted["sha256"]},
            "known_lines": _LINES,
        }
        train, test = (self.original / name for name in ("train", "test"))
        return self.make(
            report,
            [train],
            None,
            test,
            source,
            max_tokens=_MAX_TOKENS,
            lowercase=True,
            hold_out=_HOLD_OUT,
        )

    def _extract(self, archive: Path, work: Path) -> None:
        """Put the plain text, train and test, into the folder ``work``."""
        names = (TRAIN, *TEST)
        members = [name.format(lang=lang) for name in names for lang in self.langs]
        extract(archive, members, work / "de-en")
        for lang in self.langs:
            train, *tests = [work / "de-en" / name.format(lang=lang) for name in names]
            write_lines(work / f"train.{lang}", training_sentences(read_lines(train)))
            test = (line for path in tests for line in test_sentences(read_lines(path)))
            write_lines(work / f"test.{lang}", test)
            for path in (train, *tests):
                path.unlink()
        for name in ("train", "test"):
            aligned_lines(*(work / f"{name}.{lang}" for lang in self.langs))


def training_sentences(lines: Iterable[str]) -> Iterator[str]:
    """The text of a training file: titles and descriptions untagged, and no other annotation."""
    for line in lines:
        if not any(mark in line for mark in _NO_TEXT):
            yield _MARKS.sub("", line)


def test_sentences(lines: Iterable[str]) -> Iterator[str]:
    """The sentences of a test set's XML file."""
    for line in lines:
        if match := _SEGMENT.search(line):
            yield match[1].replace("\u2019", "'")


if __name__ == "__main__":
    run_corpus(Iwslt14, __doc__)
