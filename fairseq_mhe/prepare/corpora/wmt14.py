"""WMT14 English-German: Europarl, Common Crawl, News Commentary, newstest2013 and newstest2014."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from http.client import HTTPException
from pathlib import Path
from tarfile import TarError

import sacrebleu

from fairseq_mhe.common.errors import UserError
from fairseq_mhe.prepare.archive import extract
from fairseq_mhe.prepare.config import Inputs, vocabulary
from fairseq_mhe.prepare.corpora.known import Corpus, Downloads, default_out, run_corpus
from fairseq_mhe.prepare.download import RemoteFile
from fairseq_mhe.prepare.options import option
from fairseq_mhe.prepare.text import side_path


@dataclass(frozen=True, kw_only=True)
class Part(RemoteFile):
    """An archive with the two members PREFIX.en and PREFIX.de."""

    prefix: str


# Sizes and SHA-256 as in TensorFlow Datasets' lists of checksums.
PARTS = {
    "europarl-v7": Part(
        url="http://www.statmt.org/wmt13/training-parallel-europarl-v7.tgz",
        size=657632379,
        sha256="0224c7c710c8a063dfd893b0cc0830202d61f4c75c17eb8e31836103d27d96e7",
        prefix="training/europarl-v7.de-en",
    ),
    "commoncrawl": Part(
        url="http://www.statmt.org/wmt13/training-parallel-commoncrawl.tgz",
        size=918311367,
        sha256="c7a74e2ea01ac6c920123108627e35278d4ccb5701e15428ffa34de86fa3a9e5",
        prefix="commoncrawl.de-en",
    ),
    "news-commentary-v9": Part(
        url="http://www.statmt.org/wmt14/training-parallel-nc-v9.tgz",
        size=80418416,
        sha256="cb8953f292298e6877ae433c98912b927cb0766b303f4540512ddd286c748485",
        prefix="training/news-commentary-v9.de-en",
    ),
    "news-commentary-v12": Part(
        url="http://data.statmt.org/wmt17/translation-task/training-parallel-nc-v12.tgz",
        size=168591139,
        sha256="2b45f30ef1d550d302fd17dd3a5cbe19134ccc4c2cf50c2dae534aee600101a2",
        prefix="training/news-commentary-v12.de-en",
    ),
}
#: The test set of each split, by its own name and by sacreBLEU's; and its lines.
_NEWSTEST = {"valid": ("newstest2013", "wmt13"), "test": ("newstest2014", "wmt14/full")}
_NEWSTEST_LINES = {"valid": 3000, "test": 3003}


@dataclass(frozen=True, kw_only=True)
class Wmt14(Downloads, Corpus):
    """Three of ``parts`` for training, and the two test sets."""

    out: Path = default_out("runs/wmt14-data")
    vocab_size: int = vocabulary(32000)
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
    parts: Mapping[str, Part] = field(default_factory=lambda: PARTS)

    def prepare(self) -> Path:
        """Make the data folder, or what of it is missing; raises UserError as `Corpus.make`."""
        names = ("europarl-v7", "commoncrawl", f"news-commentary-{self.news_commentary}")
        parts = [self.parts[name] for name in names]
        self.unpack(parts, partial(_unpack, parts))
        source = {"corpus": "wmt14", "known_lines": _NEWSTEST_LINES}
        files: Inputs = {"train": [self._sides(self.original / part.prefix) for part in parts]}
        for split, (name, test_set) in _NEWSTEST.items():
            folder = self.newstest
            files[split] = [self._sides(folder / name) if folder else from_sacrebleu(test_set)]
        return self.make(files, source, punctuation=True)

    def _sides(self, prefix: Path) -> tuple[Path, ...]:
        return tuple(side_path(prefix, lang) for lang in self.langs)


def _unpack(parts: Sequence[Part], archives: list[Path], work: Path) -> None:
    for part, archive in zip(parts, archives, strict=True):
        extract(archive, [f"{part.prefix}.{lang}" for lang in Wmt14.langs], work)


def from_sacrebleu(test_set: str) -> tuple[Path, ...]:
    """Both sides of a test set, which sacreBLEU downloads and checks if it has not got it yet.

    Raises:
        UserError: sacreBLEU cannot get it.
    """
    pair = "-".join(Wmt14.langs)
    try:
        source = sacrebleu.get_source_file(test_set, pair)
        return Path(source), Path(sacrebleu.get_reference_files(test_set, pair)[0])
    except (OSError, HTTPException, TarError, EOFError, SystemExit) as error:
        reason = " ".join(str(error).split())
        raise UserError(
            f"sacreBLEU cannot get its test set {test_set} ({reason}); have a network, or name a "
            "folder with newstest2013 and newstest2014 by --newstest"
        ) from error


if __name__ == "__main__":
    run_corpus("wmt14_en_de.sh", Wmt14, Wmt14.prepare, __doc__)
