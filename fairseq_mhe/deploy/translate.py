"""``fairseq-mhe translate``: translate plain text, one line of output for each line."""

import contextlib
import os
import queue
import sys
import threading
from argparse import ArgumentParser, Namespace
from collections.abc import Iterator
from itertools import chain
from pathlib import Path
from typing import Any, TextIO

from fairseq_mhe.common.arguments import positive, threads
from fairseq_mhe.common.cpu import keep_freed_memory
from fairseq_mhe.common.errors import UserError
from fairseq_mhe.common.files import atomic_path, check_output
from fairseq_mhe.common.progress import say
from fairseq_mhe.common.quiet import quiet_fairseq
from fairseq_mhe.deploy.translator import ENGINES, PRECISIONS, Translator
from fairseq_mhe.prepare.text import OPENERS, STANDARD_INPUT, read_lines

#: The most lines that are translated together, sorted by length, before one is written.
CHUNK = 4000


def add_arguments(parser: ArgumentParser) -> None:
    add = parser.add_argument
    help_ = "bundle (of fairseq-mhe export), run folder, or checkpoint (with --data)"
    add("model", type=Path, metavar="MODEL", help=help_)
    help_ = "text with one sentence a line, also .gz, .xz or .bz2 (default or -: standard input)"
    add("files", nargs="*", default=[], type=Path, metavar="FILE", help=help_)
    help_ = "file for all translations, also .gz, .xz or .bz2 (default or -: print them)"
    add("--out", type=Path, metavar="FILE", help=help_)
    help_ = "beam size (default: as in the model's scoring)"
    add("--beam", type=positive, metavar="N", help=help_)
    help_ = "N translations of each line: line number, TAB, score (log probability), TAB, text"
    add("--nbest", type=positive, metavar="N", help=help_)
    help_ = "translate each sentence of a line by itself, and join the translations"
    add("--sentences", action="store_true", help=help_)
    help_ = (
        "engine; auto is CTranslate2 if it is installed and agrees with fairseq, else fairseq "
        "(default: %(default)s)"
    )
    add("--engine", choices=ENGINES, default="auto", help=help_)
    help_ = (
        "number format (default: %(default)s). fp16 needs a GPU. bf16 needs fairseq and a CPU. "
        "int8 stores weights in 8 bits, an approximation, and needs a CPU. auto takes bf16 if "
        "fairseq translates on a CPU with AVX512-BF16 or AMX, else float32"
    )
    add("--precision", choices=PRECISIONS, default="float32", help=help_)
    help_ = "subwords in a batch (default: as in the model's scoring)"
    add("--batch-tokens", type=positive, metavar="N", help=help_)
    help_ = "data folder that a checkpoint was trained on"
    add("--data", type=Path, metavar="DATA", help=help_)
    add("--threads", type=threads, metavar="N", help="CPU threads (default: all cores)")
    add("--cpu", action="store_true", help="do not use a GPU")


def run(args: Namespace) -> None:
    """Translate, and print or write the translations."""
    out = None if str(args.out) == "-" else args.out
    if out:
        check_output(out, *args.files)
    paths = [STANDARD_INPUT if str(path) == "-" else path for path in args.files or ["-"]]
    streams = [
        p for p in paths if p is STANDARD_INPUT or p.is_fifo() or p.is_char_device()
    ]
    if STANDARD_INPUT in paths and sys.stdin.name == os.devnull:
        raise UserError("standard input is closed: pipe text into it, or name a file")
    # Regular files are read twice, so that a missing file or invalid text is reported first.
    total = sum(1 for path in paths if path not in streams for _ in read_lines(path))
    names = ("data", "engine", "precision", "cpu", "threads")
    options = {name: getattr(args, name) for name in names}
    keep_freed_memory()
    with quiet_fairseq():
        translator = Translator.load(args.model, **options)
        if paths == [STANDARD_INPUT] and sys.stdin.isatty():
            source, target = translator.languages
            say(f"{source} to {target}: a line, then Enter; Ctrl-D ends")
        lines = chain.from_iterable(map(read_lines, paths))
        with _output(out) as stream:
            done = 0
            for chunk in _chunks(lines, not streams):
                stream.writelines(_translations(translator, chunk, done, args))
                stream.flush()
                done += len(chunk)
                if total > CHUNK and not streams:
                    say(f"{done:,} of {total:,} lines are translated")


@contextlib.contextmanager
def _output(path: Path | None) -> Iterator[TextIO]:
    """Yield standard output in UTF-8, or the file ``path``, which appears when it is complete."""
    if path is None:
        if sys.stdout.encoding != "utf-8":
            sys.stdout.reconfigure(encoding="utf-8")  # type: ignore[union-attr]
        yield sys.stdout
        return
    opener = OPENERS.get(path.suffix, open)
    with atomic_path(path) as part, opener(part, "wt", encoding="utf-8") as stream:
        yield stream


def _translations(
    translator: Translator, lines: list[str], done: int, args: Namespace
) -> Iterator[str]:
    """Yield the output for ``lines``; ``done`` lines have been translated before them."""

    def warn(number: int, problem: str) -> None:
        say(f"line {done + number}: {problem}")

    nbest = translator.nbest(
        lines,
        args.nbest or 1,
        beam=args.beam,
        batch_tokens=args.batch_tokens,
        sentences=args.sentences,
        warn=warn,
    )
    for number, translations in enumerate(nbest, done + 1):
        for translation in translations:
            prefix = f"{number}\t{translation.score:.4f}\t" if args.nbest else ""
            yield f"{prefix}{translation.text}\n"


def _chunks(lines: Iterator[str], are_files: bool) -> Iterator[list[str]]:
    """Yield lines to translate together; from a pipe: whatever arrived meanwhile."""
    arrived: queue.Queue[Any] = queue.Queue(CHUNK)

    def read() -> None:
        try:
            for line in lines:
                arrived.put(line)
            arrived.put(None)
        except UserError as error:
            arrived.put(error)

    threading.Thread(target=read, daemon=True).start()
    chunk = []
    while isinstance(line := arrived.get(), str):
        chunk.append(line)
        if len(chunk) == CHUNK or (arrived.empty() and not are_files):
            yield chunk
            chunk = []
    if chunk:
        yield chunk
    if line is not None:  # the UserError of a line that is not valid text
        raise line
