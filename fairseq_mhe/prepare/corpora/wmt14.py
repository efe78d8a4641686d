"""WMT14 English-German as a data folder."""

import shutil
from dataclasses import dataclass
from http.client import HTTPException
from pathlib import Path
from tarfile import TarError

import sacrebleu

from fairseq_mhe.common.errors import UserError
from fairseq_mhe.prepare.config import option, vocabulary
from fairseq_mhe.prepare.corpora.known import Downloads, PairCorpus, default_out
from fairseq_mhe.prepare.download import RemoteFile, extract

#: The prefix of two members, PREFIX.en and PREFIX.de -> their archive. Sizes and SHA-256 as in
#: TensorFlow Datasets' lists of checksums.
ARCHIVES = {
    "training/europarl-v7.de-en": RemoteFile(
        "http://www.statmt.org/wmt13/training-parallel-europarl-v7.tgz",
        657632379,
        "0224c7c710c8a063dfd893b0cc0830202d61f4c75c17eb8e31836103d27d96e7",
    ),
    "commoncrawl.de-en": RemoteFile(
        "http://www.statmt.org/wmt13/training-parallel-commoncrawl.tgz",
        918311367,
        "c7a74e2ea01ac6c920123108627e35278d4ccb5701e15428ffa34de86fa3a9e5",
    ),
    "training/news-commentary-v9.de-en": RemoteFile(
        "http://www.statmt.org/wmt14/training-parallel-nc-v9.tgz",
        80418416,
        "cb8953f292298e6877ae433c98912b927cb0766b303f4540512ddd286c748485",
    ),
    "training/news-commentary-v12.de-en": RemoteFile(
        "http://data.statmt.org/wmt17/translation-task/training-parallel-nc-v12.tgz",
        168591139,
        "2b45f30ef1d550d302fd17dd3a5cbe19134ccc4c2cf50c2dae534aee600101a2",
    ),
}
#: Test set -> sacreBLEU's name.
_NEWSTEST = {"newstest2013": "wmt13", "newstest2014": "wmt14/full"}
_LINES = {"valid": 3000, "test": 3003}


@dataclass(frozen=True, kw_only=True)
class Wmt14(Downloads, PairCorpus):
    """WMT14: Europarl, Common Crawl and News Commentary, newstest2013 and newstest2014."""

    out: Path = default_out("runs/wmt14-data")
    vocab_size: int = vocabulary(32000)
    punctuation: bool = True
    news_commentary: str = option(
        "v9",
        "version of the smallest corpus: v9 is WMT14's, v12 what fairseq's script takes",
        choices=("v9", "v12"),
    )
    newstest: Path | None = option(
        None,
        "newstest2013.{en,de} and newstest2014.{en,de} (also .gz, .xz) in place of sacreBLEU's "
        "own download",
        type=Path,
        metavar="FOLDER",
    )

    def prepare(self) -> Path:
        """Make the data folder, or what of it is missing; raises UserError as `make`."""
        prefixes = [prefix for prefix in ARCHIVES if "news" not in prefix]
        prefixes.append(f"training/news-commentary-{self.news_commentary}.de-en")

        def unpack(paths: list[Path], work: Path) -> None:
            for prefix, path in zip(prefixes, paths, strict=True):
                extract(path, [f"{prefix}.{lang}" for lang in self.langs], work)

        self.unpack([ARCHIVES[prefix] for prefix in prefixes], unpack)
        folder = self.newstest or copy_from_sacrebleu(self.original)
        valid, test = (folder / name for name in _NEWSTEST)
        train = tuple(self.original / prefix for prefix in prefixes)
        return self.make("wmt14", _LINES, train=train, valid=valid, test=test)


def copy_from_sacrebleu(folder: Path) -> Path:
    """Put the test sets, which sacreBLEU downloads and checks, into ``folder``, and return it.

    Raises:
        UserError: sacreBLEU cannot get one.
    """
    for name, test_set in _NEWSTEST.items():
        try:
            source = sacrebleu.get_source_file(test_set, "en-de")
            (target,) = sacrebleu.get_reference_files(test_set, "en-de")
        except (OSError, HTTPException, TarError, EOFError, SystemExit) as error:
            reason = " ".join(str(error).split())
            raise UserError(
                f"sacreBLEU cannot get its test set {test_set} ({reason}); connect to a network, "
                "or name a folder with newstest2013 and newstest2014 by --newstest"
            ) from error
        shutil.copy(source, folder / f"{name}.en")
        shutil.copy(target, folder / f"{name}.de")
    return folder
