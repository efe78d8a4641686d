"""``fairseq-mhe translate``: plain text in, plain text out, a line for each line."""

import argparse
import contextlib
import queue
import sys
import threading
from collections.abc import Iterator
from functools import partial
from itertools import chain, islice
from pathlib import Path
from typing import TextIO

from fairseq_mhe.common.arguments import positive
from fairseq_mhe.common.errors import UserError
from fairseq_mhe.common.files import atomic_path
from fairseq_mhe.common.progress import Board, say
from fairseq_mhe.common.quiet import quiet_fairseq
from fairseq_mhe.deploy.engine import AUTO, ENGINES, FAIRSEQ, FLOAT32, PRECISIONS
from fairseq_mhe.deploy.translator import Translation, Translator
from fairseq_mhe.prepare.text import STANDARD_INPUT, read_lines

#: Lines that are sorted by length and translated together, before the first of them is written.
CHUNK = 4000


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of ``fairseq-mhe translate``."""
    add = parser.add_argument
    help_ = "a bundle (of fairseq-mhe export), a run folder, or a checkpoint (with --data)"
    add("model", type=Path, metavar="MODEL", help=help_)
    help_ = "text, a sentence a line, plain or compressed (default: standard input, also -)"
    add("files", nargs="*", type=Path, metavar="FILE", help=help_)
    add("--out", type=Path, metavar="FILE", help="write there, once all is translated")
    add("--beam", type=positive, metavar="N", help="beam (default: as the model was scored)")
    help_ = "N translations of each line: its number, TAB, score (log probability), TAB, text"
    add("--nbest", type=positive, metavar="N", help=help_)
    help_ = "auto: CTranslate2 where it is installed and translates the same"
    add("--engine", choices=ENGINES, default=AUTO, help=f"{help_} (default: %(default)s)")
    numbers = parser.add_mutually_exclusive_group()
    help_ = "weights of 8-bit integers: an approximation"
    numbers.add_argument("--int8", action="store_true", help=help_)
    help_ = (
        "products of large weights on a CPU by --engine fairseq; auto: bf16 where the processor "
        "has AVX512-BF16 or AMX, else float32"
    )
    help_ = f"{help_} (default: %(default)s)"
    numbers.add_argument("--precision", choices=PRECISIONS, default=FLOAT32, help=help_)
    help_ = "subwords that are translated at a time (default: as the model was scored)"
    add("--batch-tokens", type=positive, metavar="N", help=help_)
    add("--direction", metavar="SRC-TGT", help="refuse a model of other languages; as en-de")
    add(
        "--data", type=Path, metavar="DATA", help="the data folder that a checkpoint belongs to"
    )
    add("--threads", type=positive, metavar="N", help="CPU threads (default: all cores)")
    add("--cpu", action="store_true", help="do not use a GPU")


def run(args: argparse.Namespace) -> int | None:
    """Translate; Ctrl-C ends it with what is translated by then."""
    paths = [STANDARD_INPUT if str(path) == "-" else path for path in args.files or ["-"]]
    # Files are read twice: all lines are checked before work begins.
    are_files = all(path is not STANDARD_INPUT and path.is_file() for path in paths)
    total = sum(1 for path in paths for _ in read_lines(path)) if are_files else None
    with quiet_fairseq():
        translator = Translator.load(
            args.model,
            data=args.data,
            direction=args.direction,
            engine=args.engine,
            int8=args.int8,
            precision=args.precision,
            cpu=args.cpu,
            threads=args.threads,
        )
        if args.threads and translator.engine == FAIRSEQ:
            import torch

            torch.set_num_threads(args.threads)
        try:
            with _output(args.out) as stream:
                _translate(translator, paths, total, stream, args)
        except KeyboardInterrupt:
            say("fairseq-mhe translate: stopped; later lines are not translated")
            return 130
    return None


@contextlib.contextmanager
def _output(path: Path | None) -> Iterator[TextIO]:
    """Standard output in UTF-8, or a file that appears when it is whole."""
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
    stream: TextIO,
    args: argparse.Namespace,
) -> None:
    """Translate all lines, and write them a chunk at a time; ``total`` as far as it is known."""
    if paths == [STANDARD_INPUT] and sys.stdin.isatty():
        source, target = translator.languages
        say(f"{source} to {target}: a line, then Enter; Ctrl-D ends")
    lines = chain.from_iterable(map(read_lines, paths))
    chunks = _arriving(lines) if total is None else _of_size(lines)
    shown = 0 if total is None or total <= CHUNK or stream.isatty() else total
    board, done = Board("lines"), 0
    with board if shown else contextlib.nullcontext():
        if shown:
            board.add("translated", shown)
        for chunk in chunks:
            translations = translator.nbest(
                chunk,
                args.nbest or 1,
                beam=args.beam,
                batch_tokens=args.batch_tokens,
                on_cut=partial(_warn_of_cut, done),
            )
            for number, best in enumerate(translations, done + 1):
                stream.writelines(_rows(number, best, args.nbest))
            stream.flush()
            done += len(chunk)
            if shown:
                board.update("translated", done)


def _warn_of_cut(done: int, number: int) -> None:
    say(f"line {done + number}: a sentence is too long; it was cut inside")


def _rows(number: int, translations: list[Translation], nbest: int | None) -> Iterator[str]:
    """The text, or ``nbest`` rows with the line's number and scores."""
    for each in translations:
        yield f"{number}\t{each.score:.4f}\t{each.text}\n" if nbest else f"{each.text}\n"


def _of_size(lines: Iterator[str]) -> Iterator[list[str]]:
    while chunk := list(islice(lines, CHUNK)):
        yield chunk


def _arriving(lines: Iterator[str]) -> Iterator[list[str]]:
    """The lines of a pipe or terminal: those that came while the last ones were translated.

    Raises:
        UserError: a line is not clean text; the lines before it have been yielded.
    """
    arrived: queue.Queue[str | UserError | None] = queue.Queue(CHUNK)

    def read() -> None:
        try:
            for line in lines:
                arrived.put(line)
            arrived.put(None)
        except UserError as error:
            arrived.put(error)

    threading.Thread(target=read, daemon=True).start()
    last: str | UserError | None = ""
    while isinstance(last, str):
        items = [arrived.get()]
        while not arrived.empty() and len(items) < CHUNK:
            items.append(arrived.get())
        last = items[-1]
        if chunk := [item for item in items if isinstance(item, str)]:
            yield chunk
    if last is not None:
        raise last
