"""``fairseq-mhe translate``: plain text in, plain text out, a line for each line."""

import argparse
import contextlib
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import TextIO

import torch

from fairseq_mhe.common.arguments import positive
from fairseq_mhe.common.errors import UserError
from fairseq_mhe.common.files import atomic_path
from fairseq_mhe.common.progress import Board, say
from fairseq_mhe.common.quiet import quiet_fairseq
from fairseq_mhe.deploy.loading import AUTO, ENGINES
from fairseq_mhe.deploy.translator import LongSentenceError, Translation, Translator
from fairseq_mhe.prepare.text import STANDARD_INPUT, read_lines

#: Lines that are sorted by length and translated together, before the first of them is written.
CHUNK = 4000


@dataclass(frozen=True)
class Line:
    """A line of plain text and where it stands."""

    path: Path
    number: int
    text: str


@dataclass(frozen=True)
class Writer:
    """How translations are written: one a line, or ``nbest`` with the line's number and scores."""

    stream: TextIO
    nbest: int | None

    def write(self, number: int, found: list[Translation]) -> None:
        """The translations of the line ``number`` of all."""
        if self.nbest is None:
            self.stream.write(f"{found[0].text}\n")
        else:
            for each in found:
                self.stream.write(f"{number}\t{each.score:.4f}\t{each.text}\n")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of ``fairseq-mhe translate``."""
    add = parser.add_argument
    told = "a bundle (of fairseq-mhe export), a run folder, or a checkpoint (with --data)"
    add("model", type=Path, metavar="MODEL", help=told)
    told = "text, a sentence a line, plain, .gz or .xz (default: standard input, which is also -)"
    add("files", nargs="*", type=Path, metavar="FILE", help=told)
    add("--out", type=Path, metavar="FILE", help="write there, once all is translated")
    add("--beam", type=positive, metavar="N", help="beam (default: that the model was scored with)")
    told = "N translations of each line: its number, TAB, score (log probability), TAB, text"
    add("--nbest", type=positive, metavar="N", help=told)
    told = "who translates; auto: on CPUs CTranslate2 where it is installed and translates the same"
    add("--engine", choices=ENGINES, default=AUTO, help=f"{told} (default: %(default)s)")
    add("--int8", action="store_true", help="weights of 8-bit integers: an approximation")
    told = "subwords that are translated at a time (default: as the model was scored)"
    add("--batch-tokens", type=positive, metavar="N", help=told)
    add("--direction", metavar="SRC-TGT", help="refuse a model of other languages; as en-de")
    add("--data", type=Path, metavar="DATA", help="the data folder that a checkpoint belongs to")
    add("--threads", type=positive, metavar="N", help="CPU threads (default: all cores)")
    add("--cpu", action="store_true", help="do not use a GPU")


def run(args: argparse.Namespace) -> int | None:
    """Translate; Ctrl-C ends it with what is translated by then."""
    paths = [STANDARD_INPUT if str(path) == "-" else path for path in args.files]
    paths = paths or [STANDARD_INPUT]
    total = _count(paths) if all(map(_can_be_read_twice, paths)) else None
    if args.threads:
        torch.set_num_threads(args.threads)
    with quiet_fairseq():
        translator = Translator.load(
            args.model,
            data=args.data,
            direction=args.direction,
            engine=args.engine,
            int8=args.int8,
            cpu=args.cpu,
            threads=args.threads,
        )
        try:
            with _output(args.out) as stream:
                _translate(translator, paths, total, Writer(stream, args.nbest), args)
        except KeyboardInterrupt:
            kept = "later lines are not written" if args.out is None else f"no {args.out} is made"
            say(f"fairseq-mhe translate: stopped; {kept}")
            return 130
    return None


def _can_be_read_twice(path: Path) -> bool:
    """Not what comes through a pipe or from a terminal."""
    return path is not STANDARD_INPUT and not path.is_fifo() and not path.is_char_device()


def _count(paths: Iterable[Path]) -> int:
    """How many lines there are, each of them seen to be clean text before work begins."""
    return sum(1 for path in paths for _ in read_lines(path))


@contextlib.contextmanager
def _output(path: Path | None) -> Iterator[TextIO]:
    """Standard output in UTF-8, or a file that is there when it is whole."""
    if path is None:
        if sys.stdout.encoding.lower() != "utf-8":
            sys.stdout.reconfigure(encoding="utf-8")  # type: ignore[union-attr]
        yield sys.stdout
        return
    with atomic_path(path) as part, part.open("w", encoding="utf-8", newline="\n") as stream:
        yield stream


def _translate(
    translator: Translator,
    paths: list[Path],
    total: int | None,
    writer: Writer,
    args: argparse.Namespace,
) -> None:
    """Translate all lines, and write them a chunk at a time."""
    by_hand = paths == [STANDARD_INPUT] and sys.stdin.isatty()
    if by_hand:
        source, target = translator.languages
        say(f"{source} to {target}: a line, then Enter; Ctrl-D ends")
    lines = _lines(paths, 1 if by_hand else 1000)
    done = 0
    with _board(writer.stream, total) as board:
        while chunk := list(islice(lines, 1 if by_hand else CHUNK)):

            def report(count: int, before: int = done) -> None:
                if board is not None and total is not None:
                    board.report("translated", before + count, total)

            try:
                found = translator.nbest(
                    [line.text for line in chunk],
                    args.nbest or 1,
                    beam=args.beam,
                    batch_tokens=args.batch_tokens,
                    report=report,
                )
            except LongSentenceError as error:
                line = chunk[error.line - 1]
                raise UserError(f"{line.path}, line {line.number}: {error.reason}") from None
            for number, translations in enumerate(found, done + 1):
                writer.write(number, translations)
            writer.stream.flush()
            done += len(chunk)


def _lines(paths: Iterable[Path], at_once: int) -> Iterator[Line]:
    for path in paths:
        for number, text in enumerate(read_lines(path, at_once), 1):
            yield Line(path, number, text)


def _board(stream: TextIO, total: int | None) -> contextlib.AbstractContextManager[Board | None]:
    """Progress with the time that is left, where the translations themselves do not show it."""
    if total is None or total <= CHUNK // 10 or stream.isatty():
        return contextlib.nullcontext()
    return Board("lines")
