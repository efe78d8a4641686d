"""IWSLT14 German-English (TED talks; Cettolo et al. 2014): download and prepare it."""

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from tempfile import TemporaryDirectory

from fairseq_mhe.common.archives import extract
from fairseq_mhe.prepare.config import vocabulary
from fairseq_mhe.prepare.corpora.known import KNOWN, Downloads, PairCorpus, out_option
from fairseq_mhe.prepare.text import read_lines, write_lines

_NO_TEXT = re.compile("<(url|talkid|keywords)>")
_MARKS = re.compile(r"</?(?:title|description)>")
_SEGMENT = re.compile(r'<seg id="[0-9]*">\s*(.*?)\s*</seg>')


@dataclass(frozen=True)
class Iwslt14(Downloads, PairCorpus):
    """Prepare IWSLT14 by fairseq's recipe: lower case; every 23rd clean training pair is valid."""

    source_lang: str = "de"
    target_lang: str = "en"
    out: Path = out_option("runs/iwslt14-data")
    vocab_size: int = vocabulary(10000)
    max_tokens: int = 175
    max_ratio: float | None = 1.5
    lowercase: bool = True
    hold_out: int = 23

    def prepare(self) -> Path:
        self.unpack(KNOWN["iwslt14"]["files"], self._unpack)
        train, test = self.original / "train", self.original / "test"
        return self.make("iwslt14", train=(train,), test=test)

    def _unpack(self, archives: list[Path], work: Path) -> None:
        with TemporaryDirectory(dir=work) as folder:
            for lang in self.langs:
                names = [name.format(lang=lang) for name in KNOWN["iwslt14"]["members"]]
                extract(archives[0], Path(folder), names)
                train, *tests = (read_lines(Path(folder) / name) for name in names)
                write_lines(work / f"train.{lang}", training_sentences(train))
                write_lines(work / f"test.{lang}", test_sentences(chain(*tests)))


def training_sentences(lines: Iterable[str]) -> Iterator[str]:
    """Yield sentences, titles and descriptions of a training file; drop tags and other metadata."""
    return (_MARKS.sub("", line) for line in lines if not _NO_TEXT.search(line))


def test_sentences(lines: Iterable[str]) -> Iterator[str]:
    """Yield the sentences of the XML files of test sets."""
    for match in filter(None, map(_SEGMENT.search, lines)):
        yield match[1].replace("\u2019", "'")
