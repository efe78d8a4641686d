"""What the known corpora share: a class of facts and options that is a script of data-prep/."""

import argparse
import sys
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

from fairseq_mhe.common.arguments import Parser, add_options, from_options, option
from fairseq_mhe.common.errors import exit_status, one_clear_line
from fairseq_mhe.prepare.config import ORIGINAL, PrepareConfig, SubwordOptions
from fairseq_mhe.prepare.download import RemoteFile, obtain_all
from fairseq_mhe.prepare.manifest import read_manifest
from fairseq_mhe.prepare.pipeline import prepare
from fairseq_mhe.prepare.progress import Report, shown_progress, silent

ARCHIVES = "archives"


def default_out(default: str) -> Any:
    """The field of the folder to make."""
    return option(Path(default), "folder to make", type=Path, metavar="DATA")


@dataclass(frozen=True, kw_only=True)
class Downloads:
    """Where what is downloaded comes from, and where it is put."""

    mirror: str | None = option(
        None, "download from URL/NAME; checksums stay the same", metavar="URL"
    )
    archives: Path | None = option(
        None,
        f"where the downloads are, or are put (default: DATA/{ORIGINAL}/{ARCHIVES})",
        type=Path,
        metavar="FOLDER",
    )

    def obtained(self, files: Sequence[RemoteFile], original: Path, report: Report) -> list[Path]:
        """The verified files, downloaded where they are missing, into a folder of ``original``.

        Raises:
            UserError: as `obtain_all`.
        """
        return obtain_all(files, self.archives or original / ARCHIVES, report, self.mirror)


@dataclass(frozen=True, kw_only=True)
class Corpus(SubwordOptions, ABC):
    """A known corpus, to be made the data folder ``out``.

    A subclass says its facts, and in ``prepare`` how its text is got. Those of its fields that are
    an `option` are options of its ``script`` in data-prep/.
    """

    script: ClassVar[str]
    langs: ClassVar[tuple[str, str]] = ("en", "de")

    out: Path

    @abstractmethod
    def prepare(self, report: Report = silent) -> Path:
        """Make the data folder, or what of it is missing, and return its path.

        Raises:
            UserError: as `pipeline.prepare`; or the text cannot be had or is another one.
        """

    @property
    def original(self) -> Path:
        """Where the text is put that is fetched."""
        return self.out / ORIGINAL

    def make(
        self,
        report: Report,
        train: Sequence[Path],
        valid: Path | None,
        test: Path,
        source: Mapping[str, Any] | None = None,
        **recipe: Any,
    ) -> Path:
        """The data folder of the text that ``prepare`` has got.

        ``source``: for the manifest. ``recipe``: further fields of `PrepareConfig`.
        """
        shared = {each.name: getattr(self, each.name) for each in fields(SubwordOptions)}
        config = PrepareConfig(
            train=tuple(train),
            valid=valid,
            test=test,
            source_lang=self.langs[0],
            target_lang=self.langs[1],
            out=self.out,
            **shared,
            **recipe,
        )
        return prepare(config, report, source)


def with_known(found: Mapping[str, int], known: Mapping[str, int]) -> dict[str, dict[str, int]]:
    """Counts beside those that are known, for the manifest."""
    return {
        name: {"found": lines} | ({"known": known[name]} if name in known else {})
        for name, lines in found.items()
    }


def count_warnings(data: Path) -> list[str]:
    """A line for each count in the manifest of ``data`` that differs from the known one."""
    manifest = read_manifest(data)
    source: dict[str, Any] = manifest.get("source", {})
    counts = source.get("lines", {}) | with_known(manifest["lines"], source.get("known_lines", {}))
    return [
        f"{name} has {count['found']:,} lines, known are {count['known']:,}"
        for name, count in counts.items()
        if count.get("known", count["found"]) != count["found"]
    ]


def finish(data: Path, warnings: Iterable[str]) -> None:
    """Warn, and say where the folder is."""
    for warning in warnings:
        print(f"fairseq-mhe: warning: {warning}", file=sys.stderr)
    print(data)


def run_script(
    name: str,
    description: str | None,
    add_arguments: Callable[[argparse.ArgumentParser], None],
    run: Callable[[argparse.Namespace], None],
) -> None:
    """The command of the script ``name``."""
    parser = Parser(prog=name, description=description)
    add_arguments(parser)

    def command() -> None:
        with one_clear_line():
            run(parser.parse_args())

    sys.exit(exit_status(name, command))


def run_corpus(kind: type[Corpus], description: str | None) -> None:
    """The script of a corpus."""

    def run(args: argparse.Namespace) -> None:
        corpus = from_options(kind, args)
        with shown_progress() as report:
            corpus.prepare(report)
        finish(corpus.out, count_warnings(corpus.out))

    add_arguments = partial(add_options, options=kind, last=SubwordOptions)
    run_script(kind.script, description, add_arguments, run)
