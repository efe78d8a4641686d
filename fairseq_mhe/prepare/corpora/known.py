"""What the known corpora share: a class of facts and options that is a script of data-prep/."""

import argparse
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

from fairseq_mhe.common.arguments import Parser
from fairseq_mhe.common.errors import exit_status
from fairseq_mhe.prepare.config import ORIGINAL, Inputs, PairOptions, PrepareConfig
from fairseq_mhe.prepare.download import RemoteFile, obtain_all
from fairseq_mhe.prepare.manifest import DOWNLOADED, Counts, open_manifest, read_manifest
from fairseq_mhe.prepare.options import add_options, from_options, option
from fairseq_mhe.prepare.parallel_text import prepare
from fairseq_mhe.prepare.progress import shown_progress
from fairseq_mhe.prepare.running_text import TextConfig, TextOptions, prepare_text

_EXPANSION = 3  # bytes of text for each byte of an archive, at most


def default_out(default: str) -> Any:
    """The field of the folder to make."""
    return option(Path(default), "folder to make", type=Path, metavar="DATA")


@dataclass(frozen=True, kw_only=True)
class Downloads:
    """Where downloads come from, and where they are put."""

    out: Path
    mirror: str | None = option(
        None, "download from URL/NAME; checksums stay the same", metavar="URL"
    )
    archives: Path | None = option(
        None,
        "folder of the downloads (default: DATA/original/archives)",
        type=Path,
        metavar="FOLDER",
    )

    @property
    def original(self) -> Path:
        """The folder of the published text."""
        return self.out / ORIGINAL

    def download(self, files: Sequence[RemoteFile]) -> list[Path]:
        """The verified files; missing ones are downloaded. Raises UserError as `obtain_all`."""
        folder = self.archives or self.original / "archives"
        return obtain_all(files, folder, self.mirror)

    def unpack(
        self, files: Sequence[RemoteFile], action: Callable[[list[Path], Path], Counts | None]
    ) -> None:
        """Download ``files`` and put their text into ``original``, unless that is done.

        ``action`` writes the text of the downloads into a folder and may return counts.

        Raises:
            UserError: as `obtain_all`, or an archive is damaged or lacks a member.
        """
        checksums = {file.name: file.sha256 for file in files}
        room = _EXPANSION * sum(file.size or 0 for file in files)
        with open_manifest(self.original, DOWNLOADED) as manifest:
            manifest.run(
                "extract", checksums, lambda work: action(self.download(files), work), room
            )
            manifest.complete()


@dataclass(frozen=True, kw_only=True)
class Corpus(PairOptions):
    """A known parallel corpus; its module gets the text."""

    langs: ClassVar[tuple[str, str]] = ("en", "de")
    out: Path

    def make(
        self, files: Inputs, source: Mapping[str, Any] | None = None, **recipe: Any
    ) -> Path:
        """The data folder of ``files``; ``recipe``: further fields of `PrepareConfig`.

        Raises:
            UserError: as `parallel_text.prepare`.
        """
        splits = {split: corpora[0][0] for split, corpora in files.items()}
        config = PrepareConfig(
            train=(splits["train"],),
            valid=splits.get("valid"),
            test=splits["test"],
            source_lang=self.langs[0],
            target_lang=self.langs[1],
            out=self.out,
            **shared(self, PairOptions),
            **recipe,
        )
        return prepare(config, source, files)


@dataclass(frozen=True, kw_only=True)
class TextCorpus(TextOptions):
    """A published text for language models: tokenised words, rare ones <unk>.

    Published perplexities are of words. Those of subwords, as here, compare with each other only.
    """

    out: Path

    def make(self, name: str, files: Sequence[Path], documents: str) -> Path:
        """The data folder of train, valid and test; ``documents`` as in `TextConfig`.

        Raises:
            UserError: as `prepare_text`.
        """
        train, valid, test = files
        config = TextConfig(
            train=(train,),
            valid=valid,
            test=test,
            out=self.out,
            documents=documents,
            **shared(self, TextOptions),
        )
        return prepare_text(config, {"corpus": name})


def shared(corpus: Any, options: type[Any]) -> dict[str, Any]:
    """The values of a corpus for the fields of ``options``."""
    return {each.name: getattr(corpus, each.name) for each in fields(options)}


def count_warnings(data: Path) -> list[str]:
    """A line for each count in the manifest of ``data`` that differs from the known one."""
    manifest = read_manifest(data)
    known: dict[str, int] = manifest.get("source", {}).get("known_lines", {})
    return [
        f"{split} has {count:,} lines, known are {known[split]:,}"
        for split, count in manifest["lines"].items()
        if count != known.get(split, count)
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


def run_corpus(
    script: str, options: type[Any], prepare: Callable[[Any], Path], description: str | None
) -> None:
    """The command of ``script``: ``prepare`` with what the command line says of ``options``."""

    def run(args: argparse.Namespace) -> None:
        with shown_progress():
            data = prepare(from_options(options, args))
        for warning in count_warnings(data):
            print(f"{script}: warning: {warning}", file=sys.stderr)
        print(data)

    add_arguments = partial(add_options, options=options)
    run_script(script, description, add_arguments, run)
