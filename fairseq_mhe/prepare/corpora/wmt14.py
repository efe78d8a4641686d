"""WMT14 English-German: download and prepare it."""

import shutil
from dataclasses import dataclass
from http.client import HTTPException
from itertools import product
from pathlib import Path
from tarfile import TarError

import sacrebleu

from fairseq_mhe.common.archives import extract
from fairseq_mhe.common.arguments import option
from fairseq_mhe.common.errors import UserError
from fairseq_mhe.prepare.config import vocabulary
from fairseq_mhe.prepare.corpora.known import KNOWN, Downloads, PairCorpus, out_option
from fairseq_mhe.prepare.text import side_path

#: Each archive has the members PREFIX.en and PREFIX.de.
PREFIXES = (
    "training/europarl-v7.de-en",
    "commoncrawl.de-en",
    "training/news-commentary-v9.de-en",
)
#: Test set -> its name in sacreBLEU.
_NEWSTEST = {"newstest2013": "wmt13", "newstest2014": "wmt14/full"}


@dataclass(frozen=True)
class Wmt14(Downloads, PairCorpus):
    """Prepare WMT14 (Europarl, Common Crawl, News Commentary; newstest2013, newstest2014)."""

    out: Path = out_option("runs/wmt14-data")
    vocab_size: int = vocabulary(32000)
    punctuation: bool = True
    max_ratio: float | None = 1.5
    newstest: Path | None = option(
        None,
        "folder of newstest2013.{en,de} and newstest2014.{en,de} (also .gz, .xz), to skip "
        "sacreBLEU's download",
        type=Path,
        metavar="FOLDER",
    )

    def prepare(self) -> Path:
        if self.newstest:  # refuse a wrong folder before the downloads
            for name, lang in product(_NEWSTEST, self.langs):
                side_path(self.newstest / name, lang)
        self.unpack(KNOWN["wmt14"]["files"], self._unpack)
        folder = self.newstest or copy_from_sacrebleu(self.original)
        valid, test = (folder / name for name in _NEWSTEST)
        train = tuple(self.original / prefix for prefix in PREFIXES)
        return self.make("wmt14", train=train, valid=valid, test=test)

    def _unpack(self, archives: list[Path], work: Path) -> None:
        for prefix, archive in zip(PREFIXES, archives, strict=True):
            extract(archive, work, [f"{prefix}.{lang}" for lang in self.langs])


def copy_from_sacrebleu(folder: Path) -> Path:
    """Copy sacreBLEU's test sets to ``folder`` and return it; UserError if one is unavailable."""
    for name, test_set in _NEWSTEST.items():
        try:
            source = sacrebleu.get_source_file(test_set, "en-de")
            (target,) = sacrebleu.get_reference_files(test_set, "en-de")
        except (OSError, HTTPException, TarError, EOFError, SystemExit) as error:
            raise UserError(
                f"sacreBLEU cannot get its test set {test_set} ({error}); connect to a network, "
                "or name a folder with newstest2013 and newstest2014 by --newstest"
            ) from error
        shutil.copy(source, folder / f"{name}.en")
        shutil.copy(target, folder / f"{name}.de")
    return folder
