"""From packages to parallel text, step by step: documents unpacked, paired, cleaned, and split."""

from __future__ import annotations

import hashlib
import os
import struct
import zipfile
import zlib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

from debian.catalogues import read_catalogue
from debian.deb import Package, read_documents
from debian.descriptions import read_descriptions
from debian.documents import (
    ENTITIES,
    GETTEXT,
    HELP,
    LIBREOFFICE,
    LYX,
    MAN,
    PARALLEL,
    PATHS,
    Document,
    is_wanted,
    kind_of,
    matched,
)
from debian.fetch import LANGS
from debian.keep import reason_to_drop
from debian.libreoffice import read_libreoffice
from debian.lyx import read_lyx
from debian.man import read_man
from debian.markup import Entities, read_entities, read_markup, resolved
from debian.split import Row, split
from debian.text import Pair, decode, plain, sentence_pairs
from fairseq_mhe.common.errors import UserError
from fairseq_mhe.common.files import atomic_path, check_room, sha256, write_json
from fairseq_mhe.prepare.manifest import Counts, Manifest
from fairseq_mhe.prepare.parallel import ordered_map
from fairseq_mhe.prepare.progress import Report
from fairseq_mhe.prepare.text import read_lines

RULES = 1  # of reading and cleaning; another number makes what was read with others be read again
DESCRIPTIONS = "descriptions"
KINDS = (MAN, HELP, LIBREOFFICE, DESCRIPTIONS, GETTEXT, LYX)

UNREADABLE = (ValueError, OSError, EOFError, zlib.error, struct.error, SyntaxError, AssertionError)
UNPACKED = 0.3  # bytes of packed documents for each byte of a package, with some to spare
CHUNK = 8  # documents that a process reads at a time


@dataclass
class Found:
    """The clean pairs of some documents, what became of others, and documents not readable."""

    rows: list[Row] = field(default_factory=list)
    counts: Counter[str] = field(default_factory=Counter)
    unreadable: list[str] = field(default_factory=list)

    def add(self, kind: str, package: str, paragraphs: Iterable[Pair]) -> None:
        """Cut paragraphs into sentences, and keep the good ones."""
        for paragraph in paragraphs:
            for pair in sentence_pairs(*map(plain, paragraph)):
                reason = reason_to_drop(pair)
                self.counts[reason or "kept"] += 1
                if reason is None:
                    self.rows.append(Row(kind, package, pair))

    def join(self, other: Found) -> None:
        """Take another's, too."""
        self.rows += other.rows
        self.counts += other.counts
        self.unreadable += other.unreadable


@dataclass(frozen=True)
class Task:
    """Some documents of one kind.

    Of each its package, and the archives and paths: English and German, or one.
    """

    kind: str
    documents: tuple[tuple[str, tuple[tuple[Path, str], ...]], ...]
    entities: tuple[Entities, Entities] = ({}, {})


def unpacked_path(folder: Path, package: Package) -> Path:
    """Where a package's documents lie. The name says what they are made from."""
    rules = repr(
        (package.sha256, sorted((kind, pattern.pattern) for kind, pattern in PATHS.items()))
    )
    return folder / f"{package.name}-{hashlib.sha256(rules.encode()).hexdigest()[:16]}.zip"


def unpack(package: Package, folder: Path) -> None:
    """Put the documents of a package into one archive.

    Raises:
        UserError: the package is damaged, or a path leads out of it; nothing is left of it then.
    """
    path = unpacked_path(folder, package)
    with atomic_path(path) as temporary, zipfile.ZipFile(temporary, "w") as out:
        for name, content in read_documents(package.path, is_wanted):
            # A ZipInfo, whose date is fixed, would bring its own way of compressing: none.
            out.writestr(zipfile.ZipInfo(name), content, zipfile.ZIP_DEFLATED, compresslevel=1)


@lru_cache(maxsize=8)
def _archive(path: Path, process: int) -> zipfile.ZipFile:
    """Opened by each process: forked ones would share the place in an open file."""
    return zipfile.ZipFile(path)


def _content(path: Path, name: str) -> bytes:
    return _archive(path, os.getpid()).read(name)


def read_task(task: Task) -> Found:
    """The clean pairs of some documents."""
    readers: dict[str, Callable[..., Iterable[Pair]]] = {
        MAN: read_man,
        HELP: partial(read_markup, entities=task.entities),
        LIBREOFFICE: read_libreoffice,
        GETTEXT: read_catalogue,
        LYX: read_lyx,
    }
    found = Found()
    for package, parts in task.documents:
        try:
            contents = [_content(path, name) for path, name in parts]
            paragraphs = list(readers[task.kind](*contents))
        except UNREADABLE:
            found.unreadable.append(f"{package}: {parts[-1][1]}")
        else:
            found.add(task.kind, package, paragraphs)
    return found


class Corpus:
    """One run over the steps; each result is recorded in ``steps``."""

    def __init__(
        self,
        steps: Manifest,
        packages: Sequence[Package],
        descriptions: dict[str, tuple[Path, ...]],
    ) -> None:
        """``descriptions``: language -> Translation files."""
        self.steps = steps
        self.packages = packages
        self.descriptions = descriptions
        self.folder = steps.folder / "documents"
        self.sources = {one.name: one.source for one in packages if one.source != one.name}

    def unpack(self, workers: int, report: Report) -> None:
        """The documents of every package."""
        self.folder.mkdir(exist_ok=True)
        packed = [
            package for package in self.packages if not unpacked_path(self.folder, package).exists()
        ]
        check_room(
            self.folder,
            int(UNPACKED * sum(package.path.stat().st_size for package in packed)),
            "unpacking",
        )
        for number, _ in enumerate(
            ordered_map(partial(unpack, folder=self.folder), packed, workers), start=1
        ):
            report("unpack packages", number, len(packed))

    def read(self, kind: str, workers: int, report: Report) -> Counts:
        """The clean pairs of one kind, as DATA/pairs/KIND.tsv: package, English, German."""
        if kind == DESCRIPTIONS:
            inputs: Any = {
                lang: [sha256(path) for path in self.descriptions[lang]] for lang in LANGS
            }
            inputs["sources"] = self.sources
        else:
            inputs = [package.sha256 for package in self.packages]
        made_from = {"rules": RULES, "inputs": inputs}

        def action(work: Path) -> Counts:
            found = Found()
            for one in self._found(kind, workers, report):
                found.join(one)
            (work / "pairs").mkdir()
            with (work / "pairs" / f"{kind}.tsv").open(
                "w", encoding="utf-8", newline="\n"
            ) as stream:
                stream.writelines(
                    f"{row.package}\t{row.pair[0]}\t{row.pair[1]}\n" for row in found.rows
                )
            return {**found.counts, "unreadable": sorted(found.unreadable)}

        return self.steps.run(f"read {kind}", made_from, action)

    def _found(self, kind: str, workers: int, report: Report) -> Iterator[Found]:
        if kind == DESCRIPTIONS:
            found = Found()
            for name, paragraphs in read_descriptions(
                self.descriptions["en"], self.descriptions["de"]
            ):
                found.add(kind, self.sources.get(name, name), paragraphs)
            yield found
            return
        tasks = list(self._tasks(kind))
        for number, one in enumerate(ordered_map(read_task, tasks, workers), start=1):
            report(f"read {kind}", number, len(tasks))
            yield one

    def _tasks(self, kind: str) -> Iterator[Task]:
        documents = list(self._documents(kind))
        groups: Sequence[tuple[Document, ...]] = (
            matched(documents) if kind in PARALLEL else [(one,) for one in documents]
        )
        entities = self._entities() if kind == HELP else ({}, {})
        named = [
            (
                self.packages[group[0].package].source,
                tuple(
                    (unpacked_path(self.folder, self.packages[one.package]), one.path)
                    for one in group
                ),
            )
            for group in groups
        ]
        for start in range(0, len(named), CHUNK):
            yield Task(kind, tuple(named[start : start + CHUNK]), entities)

    def _documents(self, kind: str) -> Iterator[Document]:
        for number, package in enumerate(self.packages):
            with zipfile.ZipFile(unpacked_path(self.folder, package)) as archive:
                yield from (
                    Document(number, path) for path in archive.namelist() if kind_of(path) == kind
                )

    def _entities(self) -> tuple[Entities, Entities]:
        """KDE's names for programs, keys and the like: English and German ones."""
        found: dict[str, dict[str, str]] = {lang: {} for lang in LANGS}
        for document in self._documents(ENTITIES):
            path = unpacked_path(self.folder, self.packages[document.package])
            text = decode(_content(path, document.path))
            folder = document.path.split("/")[-2]
            for lang in [folder] if folder in LANGS else LANGS:
                found[lang] |= read_entities(text)
        return resolved(found["en"]), resolved(found["de"])

    def split(self, held_out: int) -> Counts:
        """train, valid and test, and the packages of those that are held out."""
        files = {kind: self.steps.files(f"read {kind}", "sha256") for kind in KINDS}
        made_from = {"rules": RULES, "inputs": files, "held_out": held_out}

        def action(work: Path) -> Counts:
            splits = split(list(self._rows()), held_out)
            kinds = {name: Counter(row.kind for row in rows) for name, rows in splits.rows.items()}
            for name, rows in splits.rows.items():
                if not rows:
                    raise UserError(
                        f"no pair is left for {name}; take more packages, or a smaller --held-out"
                    )
                for side, lang in enumerate(LANGS):
                    with (work / f"{name}.{lang}").open(
                        "w", encoding="utf-8", newline="\n"
                    ) as stream:
                        stream.writelines(f"{row.pair[side]}\n" for row in rows)
            write_json(work / "held-out-packages.json", splits.packages)
            return {
                "pairs": {name: dict(counts) for name, counts in kinds.items()},
                **splits.counts,
            }

        return self.steps.run("split", made_from, action)

    def _rows(self) -> Iterator[Row]:
        for kind in KINDS:
            for line in read_lines(self.steps.folder / "pairs" / f"{kind}.tsv"):
                package, english, german = line.split("\t")
                yield Row(kind, package, (english, german))


def record(package: Package) -> dict[str, str]:
    """What the manifest says of a package."""
    return {
        name: value
        for name, value in asdict(package).items()
        if name in ("version", "source", "sha256")
    }
