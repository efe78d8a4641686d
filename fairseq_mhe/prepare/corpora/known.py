"""What the known corpora share: a class of facts and options that is a script of data-prep/."""

import argparse
import sys
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

from fairseq_mhe.common.arguments import Parser, add_options, from_options, option
from fairseq_mhe.common.errors import exit_status
from fairseq_mhe.prepare.config import ORIGINAL, Inputs, PairOptions, PrepareConfig
from fairseq_mhe.prepare.download import RemoteFile, obtain_all
from fairseq_mhe.prepare.manifest import DOWNLOADED, Counts, open_manifest, read_manifest
from fairseq_mhe.prepare.parallel_text import prepare
from fairseq_mhe.prepare.progress import Report, shown_progress, silent


def default_out(default: str) -> Any:
    """The field of the folder to make."""
    return option(Path(default), "folder to make", type=Path, metavar="DATA")


@dataclass(frozen=True, kw_only=True)
class Downloads:
    """Where downloads come from, and where they are put."""

    mirror: str | None = option(
        None, "download from URL/NAME; checksums stay the same", metavar="URL"
    )
    archives: Path | None = option(
        None,
        "folder of the downloads (default: DATA/original/archives)",
        type=Path,
        metavar="FOLDER",
    )

    def obtained(self, files: Sequence[RemoteFile], out: Path, report: Report) -> list[Path]:
        """The verified files of the data folder ``out``, downloaded if they are missing.

        Raises:
            UserError: as `obtain_all`.
        """
        folder = self.archives or out / ORIGINAL / "archives"
        return obtain_all(files, folder, report, self.mirror)

    def unpacked(
        self,
        corpus: str,
        files: Sequence[RemoteFile],
        out: Path,
        unpack: Callable[[list[Path], Path], Counts | None],
        report: Report,
        room: float = 0,
    ) -> Counts:
        """The text of ``files`` below OUT/original, downloaded and unpacked unless it is there.

        Args:
            corpus: its name, for the manifest.
            files: what to download.
            out: the data folder.
            unpack: writes the text of the downloads into a folder, and may return counts.
            report: called with the progress.
            room: the bytes of the text, roughly.

        Raises:
            UserError: as `obtain_all`, or an archive is damaged or lacks a member.
        """

        def action(work: Path) -> Counts:
            return unpack(self.obtained(files, out, report), work) or {}

        checksums = {file.name: file.sha256 for file in files}
        with open_manifest(out / ORIGINAL, {**DOWNLOADED, "corpus": corpus}) as manifest:
            counts = manifest.run("extract", checksums, action, room)
            manifest.complete()
        return counts


@dataclass(frozen=True, kw_only=True)
class Corpus(PairOptions, ABC):
    """A known parallel corpus; the subclass has its facts, and gets its text in ``prepare``."""

    script: ClassVar[str]
    langs: ClassVar[tuple[str, str]] = ("en", "de")

    out: Path

    @abstractmethod
    def prepare(self, report: Report = silent) -> Path:
        """Make the data folder, or what of it is missing, and return its path.

        Raises:
            UserError: as `parallel_text.prepare`; or the text cannot be had or is another one.
        """

    def make(
        self, files: Inputs, report: Report, source: Mapping[str, Any] | None = None, **recipe: Any
    ) -> Path:
        """The data folder of ``files``.

        ``source`` as in `parallel_text.prepare`; ``recipe``: further fields of `PrepareConfig`.
        """
        shared = {each.name: getattr(self, each.name) for each in fields(PairOptions)}
        splits = {split: corpora[0][0] for split, corpora in files.items()}
        config = PrepareConfig(
            train=(splits["train"],),
            valid=splits.get("valid"),
            test=splits["test"],
            source_lang=self.langs[0],
            target_lang=self.langs[1],
            out=self.out,
            **shared,
            **recipe,
        )
        return prepare(config, report, source, files)


def count_warnings(data: Path) -> list[str]:
    """A line for each count in the manifest of ``data`` that differs from the known one."""
    manifest = read_manifest(data)
    source: dict[str, Any] = manifest.get("source", {})
    lines, known = source.get("lines", {}) | manifest["lines"], source.get("known_lines", {})
    return [
        f"{name} has {count:,} lines, known are {known[name]:,}"
        for name, count in lines.items()
        if count != known.get(name, count)
    ]


def run_script(
    name: str,
    description: str | None,
    add_arguments: Callable[[argparse.ArgumentParser], None],
    run: Callable[[argparse.Namespace], None],
) -> None:
    """The command of the script ``name``."""
    parser = Parser(prog=name, description=description)
    add_arguments(parser)
    sys.exit(exit_status(name, lambda: run(parser.parse_args())))


def run_corpus(kind: type[Any], description: str | None) -> None:
    """The script of a corpus: a dataclass of options with ``script``, ``out`` and ``prepare``."""

    def run(args: argparse.Namespace) -> None:
        corpus = from_options(kind, args)
        with shown_progress() as report:
            corpus.prepare(report)
        for warning in count_warnings(corpus.out):
            print(f"{kind.script}: warning: {warning}", file=sys.stderr)
        print(corpus.out)

    add_arguments = partial(add_options, options=kind, last=PairOptions)
    run_script(kind.script, description, add_arguments, run)
