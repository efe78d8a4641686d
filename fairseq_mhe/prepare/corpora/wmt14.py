"""WMT14 English-German: Europarl, Common Crawl, News Commentary, newstest2013 and newstest2014."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial
from http.client import HTTPException
from pathlib import Path
from tarfile import TarError

import sacrebleu

from fairseq_mhe.common.arguments import option
from fairseq_mhe.common.errors import UserError
from fairseq_mhe.prepare.archive import extract
from fairseq_mhe.prepare.config import ORIGINAL, Inputs, vocabulary
from fairseq_mhe.prepare.corpora.known import Corpus, Downloads, default_out, run_corpus
from fairseq_mhe.prepare.download import RemoteFile
from fairseq_mhe.prepare.manifest import Counts
from fairseq_mhe.prepare.parallel import ordered_map
from fairseq_mhe.prepare.progress import Report, silent
from fairseq_mhe.prepare.text import count_lines, side_path


@dataclass(frozen=True)
class Part:
    """An archive, its two members PREFIX.en and PREFIX.de, and how many lines they should have."""

    file: RemoteFile
    prefix: str
    lines: int


# Sizes and SHA-256 as in TensorFlow Datasets' lists of checksums.
PARTS = {
    "europarl-v7": Part(
        RemoteFile(
            "http://www.statmt.org/wmt13/training-parallel-europarl-v7.tgz",
            657632379,
            "0224c7c710c8a063dfd893b0cc0830202d61f4c75c17eb8e31836103d27d96e7",
        ),
        "training/europarl-v7.de-en",
        1_920_209,
    ),
    "commoncrawl": Part(
        RemoteFile(
            "http://www.statmt.org/wmt13/training-parallel-commoncrawl.tgz",
            918311367,
            "c7a74e2ea01ac6c920123108627e35278d4ccb5701e15428ffa34de86fa3a9e5",
        ),
        "commoncrawl.de-en",
        2_399_123,
    ),
    "news-commentary-v9": Part(
        RemoteFile(
            "http://www.statmt.org/wmt14/training-parallel-nc-v9.tgz",
            80418416,
            "cb8953f292298e6877ae433c98912b927cb0766b303f4540512ddd286c748485",
        ),
        "training/news-commentary-v9.de-en",
        201_288,
    ),
    "news-commentary-v12": Part(
        RemoteFile(
            "http://data.statmt.org/wmt17/translation-task/training-parallel-nc-v12.tgz",
            168591139,
            "2b45f30ef1d550d302fd17dd3a5cbe19134ccc4c2cf50c2dae534aee600101a2",
        ),
        "training/news-commentary-v12.de-en",
        270_769,
    ),
}
#: The test set of each split, by its own name and by sacreBLEU's; and its lines.
_NEWSTEST = {"valid": ("newstest2013", "wmt13"), "test": ("newstest2014", "wmt14/full")}
_NEWSTEST_LINES = {"valid": 3000, "test": 3003}
_EXPANSION = 1.2  # bytes of both sides for each byte of an archive, with some to spare


@dataclass(frozen=True, kw_only=True)
class Wmt14(Downloads, Corpus):
    """Three of ``parts`` for training, and the two test sets."""

    script = "wmt14_en_de.sh"

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

    def prepare(self, report: Report = silent) -> Path:
        """As `Corpus.prepare`."""
        names = ("europarl-v7", "commoncrawl", f"news-commentary-{self.news_commentary}")
        parts = {name: self.parts[name] for name in names}
        archives = [part.file for part in parts.values()]
        room = _EXPANSION * sum(file.size or 0 for file in archives)
        unpack = partial(_unpack, parts, self.cores)
        lines = self.unpacked("wmt14", archives, self.out, unpack, report, room)
        source = {
            "corpus": "wmt14",
            "archives": {file.name: file.sha256 for file in archives},
            "lines": lines,
            "known_lines": {name: part.lines for name, part in parts.items()} | _NEWSTEST_LINES,
        }
        prefixes = [self.out / ORIGINAL / part.prefix for part in parts.values()]
        files: Inputs = {
            "train": [tuple(side_path(prefix, lang) for lang in self.langs) for prefix in prefixes]
        }
        for split, (name, test_set) in _NEWSTEST.items():
            if self.newstest is None:
                files[split] = [from_sacrebleu(test_set)]
            else:
                prefix = self.newstest / name
                files[split] = [tuple(side_path(prefix, lang) for lang in self.langs)]
        return self.make(files, report, source, punctuation=True)


def _unpack(parts: Mapping[str, Part], workers: int, archives: list[Path], work: Path) -> Counts:
    """Unpack both sides of each part, and count their lines."""
    unpack = partial(_unpack_one, work=work)
    prefixes = [part.prefix for part in parts.values()]
    counts = ordered_map(unpack, list(zip(archives, prefixes, strict=True)), workers)
    return dict(zip(parts, counts, strict=True))


def _unpack_one(item: tuple[Path, str], work: Path) -> int:
    archive, prefix = item
    names = [f"{prefix}.{lang}" for lang in Wmt14.langs]
    extract(archive, names, work)
    return count_lines(work / names[0])


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
    run_corpus(Wmt14, __doc__)
