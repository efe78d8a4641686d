"""``fairseq-mhe bench``: stock fairseq's Transformer and ours, measured side by side.

Each variant of a cell has a process of its own, and all of them take turns: whatever the machine
does meanwhile happens to all of them, and memory is each one's own.
"""

import contextlib
import logging
import multiprocessing
import os
import shlex
import time
import warnings
from argparse import ArgumentParser, Namespace
from collections import defaultdict
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from functools import partial
from pathlib import Path
from typing import Any

import torch

from fairseq_mhe.attention import KINDS
from fairseq_mhe.bench.attention import AttentionBenchmark, MemoryBenchmark
from fairseq_mhe.bench.benchmark import DTYPES, Benchmark, Values
from fairseq_mhe.bench.generation import GenerationBenchmark
from fairseq_mhe.bench.report import label, markdown
from fairseq_mhe.bench.training import TrainingBenchmark
from fairseq_mhe.common.arguments import add_seed, at_least, positive, some_of
from fairseq_mhe.common.child import end_with_parent
from fairseq_mhe.common.errors import ErrorExit, UserError
from fairseq_mhe.common.files import output_folder, read_json, write_json, write_text
from fairseq_mhe.common.progress import Board
from fairseq_mhe.common.system import cores, machine, software
from fairseq_mhe.models.architectures import sizes
from fairseq_mhe.models.build import VOCABULARY

BENCHMARKS: dict[str, type[Benchmark]] = {
    "attention": AttentionBenchmark,
    "memory": MemoryBenchmark,
    "training": TrainingBenchmark,
    "generation": GenerationBenchmark,
}
_OUT = "write FILE.json and FILE.md after each cell; the same command resumes"
_OPTIONS = (
    ("--row", "size of the models", str, "base", "ROW"),
    ("--attention", "kinds of attention, or all", some_of(KINDS), "all", "KIND,..."),
    ("--dtype", f"{', '.join(DTYPES)}, or all", some_of(DTYPES), "float32", "TYPE,..."),
    ("--threads", "CPU threads", positive, cores(), "N"),
    ("--repetitions", "rounds", positive, 5, "N"),
    ("--vocab-size", "joined vocabulary", at_least(16), VOCABULARY, "N"),
    ("--out", _OUT, Path, None, "FILE"),
)
#: What the reports say was held fixed; the command names the rest.
_FIXED = ("row", "device", "threads", "vocab_size", "repetitions", "seed")
#: What a report must share with the command that resumes it.
_SAME = ("command", "machine", "software")
#: By variant.
Workers = dict[str, ProcessPoolExecutor]
_ADVICE = "leave it out, or choose smaller batches"
#: In a process that measures: its variant's benchmark.
_benchmarks: dict[str, Benchmark] = {}


def add_arguments(parser: ArgumentParser) -> None:
    """Options of ``fairseq-mhe bench``."""
    benchmarks = parser.add_subparsers(dest="bench", required=True, metavar="WHAT")
    for name, benchmark in BENCHMARKS.items():
        own = benchmarks.add_parser(
            name, help=benchmark.title, description=benchmark.title
        )
        device = "cuda" if torch.cuda.is_available() else "cpu"
        help_ = "where to measure (default: %(default)s)"
        own.add_argument("--device", choices=["cpu", "cuda"], default=device, help=help_)
        for flag, text, kind, default, metavar in (*_OPTIONS, *benchmark.options):
            text += "" if default is None else " (default: %(default)s)"
            own.add_argument(flag, type=kind, default=default, metavar=metavar, help=text)
        for flag, text in benchmark.flags.items():
            own.add_argument(flag, action="store_true", help=text)
        add_seed(own)
        own.set_defaults(**benchmark.defaults)


def run(args: Namespace) -> None:
    """Measure every cell that a stopped run left, and print or write the results."""
    benchmark = BENCHMARKS[args.bench]
    board = Board("turns")
    sizes(args.row)
    if args.device == "cuda" and not torch.cuda.is_available():
        raise UserError("--device cuda: torch sees no GPU here; use --device cpu")
    cells = list(benchmark.cells(args))
    variants = benchmark.variants(args)
    results: Values = {
        "benchmark": args.bench,
        "command": shlex.join(["fairseq-mhe", *args.typed]),
        "machine": machine(args.device),
        "software": software(),
        "settings": {name: getattr(args, name) for name in _FIXED},
        "date": time.strftime("%Y-%m-%dT%H:%M:%S%z"),
        "load_average": round(os.getloadavg()[0], 2),
        "cells": [],
    }
    out = str(args.out or "").removesuffix(".json").removesuffix(".md")
    in_json = Path(f"{out}.json")
    in_markdown = Path(f"{out}.md")
    if out and output_folder(in_json.parent) and in_json.exists():
        before = read_json(in_json)
        same = all(before.get(name) == results[name] for name in _SAME)
        if same and len(before["cells"]) < len(cells):
            results = before
    with workers(variants, args) as started, board:
        for cell in cells[len(results["cells"]) :]:
            name = label(cell)
            board.add(name, len(started) * args.repetitions)
            measured = measure(
                started, cell, args.repetitions, partial(board.update, name)
            )
            results["cells"].append({"cell": cell, "variants": measured})
            text = markdown(benchmark, results)
            if out:
                write_json(in_json, results)
                write_text(in_markdown, text)
    print(text)


@contextlib.contextmanager
def workers(makes: dict[str, type[Benchmark]], settings: Namespace) -> Iterator[Workers]:
    """A process for each variant, forked from a server that never computed: safe with CUDA."""
    # Else torch's profiler prints when it starts, and when older memory is freed.
    os.environ.update(KINETO_LOG_LEVEL="99", TORCH_CPP_LOG_LEVEL="ERROR")
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(
        [__name__, *{make.__module__ for make in makes.values()}]
    )
    started = {}
    for variant, make in makes.items():
        started[variant] = ProcessPoolExecutor(
            1, context, _start, (make, variant, settings)
        )
    try:
        yield started
    finally:
        for process in multiprocessing.active_children():
            process.kill()
        for pool in started.values():
            pool.shutdown()  # else Python's own end may write to a pool that breaks meanwhile


def _start(make: type[Benchmark], variant: str, settings: Namespace) -> None:
    end_with_parent()
    logging.disable(logging.WARNING)
    warnings.simplefilter("ignore")
    torch.set_num_threads(settings.threads)
    _benchmarks[variant] = make(variant, settings)


def _call(variant: str, method: str, *arguments: Any) -> Any:
    """Call a method of this process' benchmark; UserError where its options or memory do not do."""
    try:
        return getattr(_benchmarks[variant], method)(*arguments)
    except ErrorExit as error:
        raise UserError(error.message) from None
    except (MemoryError, RuntimeError) as error:
        if str(error).startswith("Library "):  # of CUDA 12, which CTranslate2 opens
            how = "pip install nvidia-cublas-cu12, and name its folder in LD_LIBRARY_PATH"
            raise UserError(f"{variant}: {error}: {how}") from None
        if isinstance(error, RuntimeError) and "memory" not in str(error):
            raise
        (reason, *_) = str(error).split("\n")
        raise UserError(f"{variant} ran out of memory ({reason}): {_ADVICE}") from None


def measure(
    workers: Workers, cell: Values, repetitions: int, progress: Callable[[int], None]
) -> dict[str, Values]:
    """Repeat a cell's work, each variant once a round and another one first in each round.

    Returns by variant the ``seconds`` of each round by part, and the benchmark's result; UserError
    where a variant cannot be built or runs out of memory, or its process was killed.
    """
    variants = list(workers)
    results: dict[str, Values] = {
        name: {"seconds": defaultdict(list)} for name in variants
    }

    def ask(variant: str, method: str, *arguments: Any) -> Any:
        try:
            return workers[variant].submit(_call, variant, method, *arguments).result()
        except BrokenProcessPool:
            raise UserError(f"the process of {variant} was killed: {_ADVICE}") from None

    for variant in variants:
        ask(variant, "begin", cell)
    for number in range(repetitions):
        first = number % len(variants)
        for turn, variant in enumerate(variants[first:] + variants[:first], 1):
            for part, seconds in ask(variant, "turn").items():
                results[variant]["seconds"][part].append(seconds)
            progress(number * len(variants) + turn)
    for variant in variants:
        results[variant] |= ask(variant, "result")
    return results
