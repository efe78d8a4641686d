"""WMT14 English-German: Europarl, Common Crawl and News Commentary, newstest2013 and 2014, as a data folder."""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Any, Unpack

import sacrebleu

from fairseq_mhe.common.errors import UserError
from fairseq_mhe.common.files import sha256, write_text
from fairseq_mhe.prepare.archive import extract
from fairseq_mhe.prepare.command import (
    SubwordOptions,
    add_subword_arguments,
    settled,
    subword_options,
)
from fairseq_mhe.prepare.config import ORIGINAL, PrepareConfig
from fairseq_mhe.prepare.corpora.source import (
    add_source_arguments,
    aligned_lines,
    archives_folder,
    compare,
    count_warnings,
    finish,
    run_script,
)
from fairseq_mhe.prepare.download import RemoteFile, obtain_all
from fairseq_mhe.prepare.manifest import Counts, Manifest, Report, open_manifest
from fairseq_mhe.prepare.parallel import ordered_map
from fairseq_mhe.prepare.pipeline import prepare, silent
from fairseq_mhe.prepare.progress import shown_progress
from fairseq_mhe.prepare.text import read_lines, side_path

LANGS = ("en", "de")
MERGES = 32000
NEWS_COMMENTARY = ("v9", "v12")
NEWSTEST = {"newstest2013": "wmt13", "newstest2014": "wmt14/full"}  # ours -> sacreBLEU's name
EXTRACTED = 1.2  # bytes of both sides for each byte of an archive, with some to spare


@dataclass(frozen=True)
class Corpus:
    """An archive, its two members PREFIX.en and PREFIX.de, and how many lines they are known to have."""

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

    corpora: tuple[Corpus, ...]
    newstest: Mapping[str, int]

    def chosen(self, news_commentary: str) -> tuple[Corpus, ...]:
        """The training corpora with one version of News Commentary."""
        return tuple(
            corpus
            for corpus in self.corpora
            if not corpus.name.startswith("news-commentary")
            or corpus.name.endswith(f"-{news_commentary}")
        )


def _corpus(url: str, size: int, checksum: str, prefix: str, lines: int) -> Corpus:
    return Corpus(RemoteFile(url, size, checksum), prefix, lines)


# Sizes and SHA-256 as in TensorFlow Datasets' lists of checksums.
WMT14 = Catalogue(
    corpora=(
        _corpus(
            "http://www.statmt.org/wmt13/training-parallel-europarl-v7.tgz",
            657632379,
            "0224c7c710c8a063dfd893b0cc0830202d61f4c75c17eb8e31836103d27d96e7",
            "training/europarl-v7.de-en",
            1_920_209,
        ),
        _corpus(
            "http://www.statmt.org/wmt13/training-parallel-commoncrawl.tgz",
            918311367,
            "c7a74e2ea01ac6c920123108627e35278d4ccb5701e15428ffa34de86fa3a9e5",
            "commoncrawl.de-en",
            2_399_123,
        ),
        _corpus(
            "http://www.statmt.org/wmt14/training-parallel-nc-v9.tgz",
            80418416,
            "cb8953f292298e6877ae433c98912b927cb0766b303f4540512ddd286c748485",
            "training/news-commentary-v9.de-en",
            201_288,
        ),
        _corpus(
            "http://data.statmt.org/wmt17/translation-task/training-parallel-nc-v12.tgz",
            168591139,
            "2b45f30ef1d550d302fd17dd3a5cbe19134ccc4c2cf50c2dae534aee600101a2",
            "training/news-commentary-v12.de-en",
            270_769,
        ),
    ),
    newstest={"newstest2013": 3000, "newstest2014": 3003},
)


def read_catalogue(path: Path) -> Catalogue:
    """A catalogue from a JSON file, as `Catalogue` and `Corpus` have it (url, size, sha256, prefix, lines).

    Raises:
        UserError: it cannot be read, or something is missing in it.
    """
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        corpora = tuple(
            _corpus(entry["url"], entry["size"], entry["sha256"], entry["prefix"], entry["lines"])
            for entry in content["corpora"]
        )
        return Catalogue(corpora, dict(content["newstest"]))
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise UserError(f"{path} cannot be read as a catalogue of archives: {error!r}") from error


def fetch(
    out: Path,
    corpora: Sequence[Corpus],
    catalogue: Catalogue,
    *,
    archives: Path,
    mirror: str | None,
    newstest: Path | None,
    workers: int,
    report: Report,
) -> dict[str, Any]:
    """Put the training corpora and the test sets into the folder ``out``, and return what the manifest says of them."""
    with open_manifest(out, {"corpus": "wmt14"}) as steps:
        lines = _extract(steps, corpora, archives, mirror, workers, report)
        lines |= _newstest(steps, newstest)
        steps.write("complete")
    known = {corpus.name: corpus.lines for corpus in corpora} | dict(catalogue.newstest)
    return {
        "corpus": "wmt14",
        "archives": {corpus.file.name: corpus.file.sha256 for corpus in corpora},
        "lines": compare(lines, known),
    }


def _extract(
    steps: Manifest,
    corpora: Sequence[Corpus],
    archives: Path,
    mirror: str | None,
    workers: int,
    report: Report,
) -> dict[str, int]:
    def action(work: Path) -> Counts:
        paths = obtain_all([corpus.file for corpus in corpora], archives, report, mirror)
        counts = ordered_map(
            partial(_extract_one, work=work), list(zip(corpora, paths, strict=True)), workers
        )
        return {corpus.name: lines for corpus, lines in zip(corpora, counts, strict=True)}

    made_from = {corpus.file.name: [corpus.file.sha256, corpus.prefix] for corpus in corpora}
    sizes = sum(corpus.file.size or 0 for corpus in corpora)
    return steps.run("extract", made_from, action, room=int(EXTRACTED * sizes))


def _extract_one(item: tuple[Corpus, Path], work: Path) -> int:
    corpus, archive = item
    names = [f"{corpus.prefix}.{lang}" for lang in LANGS]
    extract(archive, names, work)
    return aligned_lines(work / names[0], work / names[1])


def _newstest(steps: Manifest, folder: Path | None) -> dict[str, int]:
    files = (
        {name: [side_path(folder / name, lang) for lang in LANGS] for name in NEWSTEST}
        if folder
        else None
    )

    def action(work: Path) -> Counts:
        counts = {}
        for name, test_set in NEWSTEST.items():
            sides = files[name] if files else from_sacrebleu(test_set)
            for side, lang in zip(sides, LANGS, strict=True):
                write_text(
                    work / f"{name}.{lang}", "".join(f"{line}\n" for line in read_lines(side))
                )
            counts[name] = aligned_lines(*(work / f"{name}.{lang}" for lang in LANGS))
        return counts

    if files:
        made_from: dict[str, Any] = {
            name: [sha256(side) for side in sides] for name, sides in files.items()
        }
    else:
        made_from = {"sacrebleu": version("sacrebleu"), **NEWSTEST}
    return steps.run("newstest", made_from, action)


def from_sacrebleu(test_set: str) -> list[Path]:
    """Both sides of a test set, which sacreBLEU downloads and checks if it has not got it yet.

    Raises:
        UserError: it cannot.
    """
    pair = "-".join(LANGS)
    try:
        return [
            Path(sacrebleu.get_source_file(test_set, pair)),
            Path(sacrebleu.get_reference_files(test_set, pair)[0]),
        ]
    except (OSError, SystemExit) as error:
        reason = " ".join(str(error).split())
        raise UserError(
            f"sacreBLEU cannot get its test set {test_set} ({reason}); have a network, or name a folder with "
            f"{' and '.join(NEWSTEST)} by --newstest"
        ) from error


def prepare_wmt14(
    out: Path,
    *,
    news_commentary: str = "v9",
    archives: Path | None = None,
    mirror: str | None = None,
    newstest: Path | None = None,
    report: Report = silent,
    catalogue: Catalogue = WMT14,
    **subwords: Unpack[SubwordOptions],
) -> Path:
    """Make the data folder ``out`` of WMT14 English-German, or what of it is not there yet, and return its path.

    ``archives``: where the training archives are, or are downloaded to (from ``mirror``).
    ``newstest``: a folder with newstest2013.{en,de} and newstest2014.{en,de}, in place of
    sacreBLEU's own download. ``catalogue``: other archives.

    Raises:
        UserError: as `prepare`; or an archive cannot be had, is another one, or lacks a member.
    """
    original = out / ORIGINAL
    corpora = catalogue.chosen(news_commentary)
    config = PrepareConfig(
        train=tuple(original / corpus.prefix for corpus in corpora),
        valid=original / "newstest2013",
        test=original / "newstest2014",
        source_lang=LANGS[0],
        target_lang=LANGS[1],
        out=out,
        punctuation=True,
        **settled(subwords, MERGES),
    )
    source = fetch(
        original,
        corpora,
        catalogue,
        archives=archives_folder(out, archives),
        mirror=mirror,
        newstest=newstest,
        workers=config.cores,
        report=report,
    )
    return prepare(config, report, source)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The script's options."""
    add_source_arguments(parser, Path("runs/wmt14-data"))
    parser.add_argument(
        "--news-commentary",
        choices=NEWS_COMMENTARY,
        default="v9",
        help="version of the smallest corpus: v9 is WMT14's, v12 what fairseq's script takes (default: %(default)s)",
    )
    parser.add_argument(
        "--newstest",
        type=Path,
        metavar="FOLDER",
        help="newstest2013.{en,de} and newstest2014.{en,de} (also .gz, .xz) in place of sacreBLEU's own download",
    )
    parser.add_argument(
        "--catalogue",
        type=Path,
        metavar="JSON",
        help="other archives, with their sizes and checksums; for trials",
    )
    add_subword_arguments(parser, "bpe", MERGES)


def run(args: argparse.Namespace) -> None:
    """Prepare the folder, with bars for the steps."""
    with shown_progress() as report:
        prepare_wmt14(
            args.out,
            news_commentary=args.news_commentary,
            archives=args.archives,
            mirror=args.mirror,
            newstest=args.newstest,
            report=report,
            catalogue=read_catalogue(args.catalogue) if args.catalogue else WMT14,
            **subword_options(args),
        )
    finish(args.out, count_warnings(args.out))


if __name__ == "__main__":
    run_script("wmt14_en_de.sh", __doc__, add_arguments, run)
