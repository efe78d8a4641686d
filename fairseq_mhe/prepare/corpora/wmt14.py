"""WMT14 English-German: Europarl, Common Crawl and News Commentary, newstest2013 and 2014, as a
data folder."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from http.client import HTTPException
from importlib.metadata import version
from pathlib import Path
from tarfile import TarError
from typing import Any

import sacrebleu

from fairseq_mhe.common.arguments import option
from fairseq_mhe.common.errors import UserError
from fairseq_mhe.common.files import read_json, sha256
from fairseq_mhe.prepare.archive import extract
from fairseq_mhe.prepare.config import vocabulary
from fairseq_mhe.prepare.corpora.known import Corpus, Downloads, default_out, run_corpus
from fairseq_mhe.prepare.download import RemoteFile
from fairseq_mhe.prepare.manifest import DOWNLOADED, Counts, Manifest, open_manifest
from fairseq_mhe.prepare.parallel import ordered_map
from fairseq_mhe.prepare.progress import Report, silent
from fairseq_mhe.prepare.text import aligned_lines, read_lines, side_path, write_lines

_NEWSTEST = {"newstest2013": "wmt13", "newstest2014": "wmt14/full"}  # ours -> sacreBLEU's name
_EXTRACTED = 1.2  # bytes of both sides for each byte of an archive, with some to spare


@dataclass(frozen=True)
class Part:
    """An archive, its two members PREFIX.en and PREFIX.de, and how many lines they should have."""

    file: RemoteFile
    prefix: str
    lines: int

    @property
    def name(self) -> str:
        """Its name without folder and languages."""
        return self.prefix.rsplit("/", 1)[-1].removesuffix(".de-en")


@dataclass(frozen=True)
class Catalogue:
    """What belongs to WMT14: the corpora in their order, and the lines of the test sets."""

    corpora: tuple[Part, ...]
    newstest: Mapping[str, int]

    def chosen(self, news_commentary: str) -> tuple[Part, ...]:
        """The training corpora with one version of News Commentary."""
        names = [name for part in self.corpora if (name := part.name).startswith("news-commentary")]
        left_out = [name for name in names if not name.endswith(f"-{news_commentary}")]
        return tuple(part for part in self.corpora if part.name not in left_out)


def _part(url: str, size: int, checksum: str, prefix: str, lines: int) -> Part:
    return Part(RemoteFile(url, size, checksum), prefix, lines)


# Sizes and SHA-256 as in TensorFlow Datasets' lists of checksums.
WMT14 = Catalogue(
    corpora=(
        _part(
            "http://www.statmt.org/wmt13/training-parallel-europarl-v7.tgz",
            657632379,
            "0224c7c710c8a063dfd893b0cc0830202d61f4c75c17eb8e31836103d27d96e7",
            "training/europarl-v7.de-en",
            1_920_209,
        ),
        _part(
            "http://www.statmt.org/wmt13/training-parallel-commoncrawl.tgz",
            918311367,
            "c7a74e2ea01ac6c920123108627e35278d4ccb5701e15428ffa34de86fa3a9e5",
            "commoncrawl.de-en",
            2_399_123,
        ),
        _part(
            "http://www.statmt.org/wmt14/training-parallel-nc-v9.tgz",
            80418416,
            "cb8953f292298e6877ae433c98912b927cb0766b303f4540512ddd286c748485",
            "training/news-commentary-v9.de-en",
            201_288,
        ),
        _part(
            "http://data.statmt.org/wmt17/translation-task/training-parallel-nc-v12.tgz",
            168591139,
            "2b45f30ef1d550d302fd17dd3a5cbe19134ccc4c2cf50c2dae534aee600101a2",
            "training/news-commentary-v12.de-en",
            270_769,
        ),
    ),
    newstest={"newstest2013": 3000, "newstest2014": 3003},
)


def read_catalogue(path: Path | str) -> Catalogue:
    """A catalogue from a JSON file, as `Catalogue` and `Part` have it.

    Raises:
        UserError: the file cannot be read, or something is missing in it.
    """
    content = read_json(Path(path))
    names = ("url", "size", "sha256", "prefix", "lines")
    try:
        parts = tuple(_part(*(entry[name] for name in names)) for entry in content["corpora"])
        return Catalogue(parts, content["newstest"])
    except (KeyError, TypeError) as error:
        raise UserError(f"{path} is no catalogue of archives: {error!r}") from None


@dataclass(frozen=True, kw_only=True)
class Wmt14(Downloads, Corpus):
    """The training corpora of ``catalogue`` with one News Commentary, and the two test sets.

    ``newstest``: a folder with newstest2013.{en,de} and newstest2014.{en,de}, in place of
    sacreBLEU's own download.
    """

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
    catalogue: Catalogue = option(
        WMT14,
        "other archives, with their sizes and checksums; for trials",
        type=read_catalogue,
        metavar="JSON",
    )

    def prepare(self, report: Report = silent) -> Path:
        """As `Corpus.prepare`."""
        parts = self.catalogue.chosen(self.news_commentary)
        with open_manifest(self.original, {**DOWNLOADED, "corpus": "wmt14"}) as manifest:
            lines = self._extract(manifest, parts, report) | self._take_newstest(manifest)
            manifest.complete()
        known = {part.name: part.lines for part in parts} | dict(self.catalogue.newstest)
        source = {
            "corpus": "wmt14",
            "archives": {part.file.name: part.file.sha256 for part in parts},
            "lines": lines,
            "known_lines": known,
        }
        train = [self.original / part.prefix for part in parts]
        valid, test = (self.original / name for name in _NEWSTEST)
        return self.make(report, train, valid, test, source, punctuation=True)

    def _extract(
        self, manifest: Manifest, parts: tuple[Part, ...], report: Report
    ) -> dict[str, int]:
        def action(work: Path) -> Counts:
            paths = self.obtained([part.file for part in parts], self.original, report)
            unpack = partial(_extract_one, langs=self.langs, work=work)
            counts = ordered_map(unpack, list(zip(parts, paths, strict=True)), self.cores)
            return {part.name: lines for part, lines in zip(parts, counts, strict=True)}

        made_from = {part.file.name: [part.file.sha256, part.prefix] for part in parts}
        size = sum(part.file.size or 0 for part in parts)
        return manifest.run("extract", made_from, action, room=_EXTRACTED * size)

    def _take_newstest(self, manifest: Manifest) -> dict[str, int]:
        files: dict[str, list[Path]] = {}
        made_from: dict[str, Any] = {"sacrebleu": version("sacrebleu"), **_NEWSTEST}
        if self.newstest is not None:
            for name in _NEWSTEST:
                files[name] = [side_path(self.newstest / name, lang) for lang in self.langs]
            made_from = {name: [sha256(side) for side in sides] for name, sides in files.items()}

        def action(work: Path) -> Counts:
            counts = {}
            for name, test_set in _NEWSTEST.items():
                written = [work / f"{name}.{lang}" for lang in self.langs]
                sides = files.get(name) or from_sacrebleu(test_set)
                for side, path in zip(sides, written, strict=True):
                    write_lines(path, read_lines(side))
                counts[name] = aligned_lines(*written)
            return counts

        return manifest.run("newstest", made_from, action)


def _extract_one(item: tuple[Part, Path], langs: tuple[str, str], work: Path) -> int:
    part, archive = item
    names = [f"{part.prefix}.{lang}" for lang in langs]
    extract(archive, names, work)
    return aligned_lines(work / names[0], work / names[1])


def from_sacrebleu(test_set: str) -> list[Path]:
    """Both sides of a test set, which sacreBLEU downloads and checks if it has not got it yet.

    Raises:
        UserError: sacreBLEU cannot get it.
    """
    pair = "-".join(Wmt14.langs)
    try:
        source = sacrebleu.get_source_file(test_set, pair)
        return [Path(source), Path(sacrebleu.get_reference_files(test_set, pair)[0])]
    except (OSError, HTTPException, TarError, EOFError, SystemExit) as error:
        reason = " ".join(str(error).split())
        raise UserError(
            f"sacreBLEU cannot get its test set {test_set} ({reason}); have a network, or name a "
            f"folder with {' and '.join(_NEWSTEST)} by --newstest"
        ) from error


if __name__ == "__main__":
    run_corpus(Wmt14, __doc__)
