"""``fairseq-mhe bench``: stock fairseq's Transformer and ours, measured side by side.

Each variant has its own process, so that its memory is measured alone. The processes take turns,
so that a busy machine disturbs all variants alike.
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
from fairseq_mhe.common.errors import UserError
from fairseq_mhe.common.files import output_folder, read_json, write_json, write_text
from fairseq_mhe.common.progress import Board
from fairseq_mhe.common.system import cores, machine, omp_threads, software
from fairseq_mhe.models.architectures import sizes
from fairseq_mhe.models.build import VOCABULARY

BENCHMARKS: dict[str, type[Benchmark]] = {
    "attention": AttentionBenchmark,
    "memory": MemoryBenchmark,
    "training": TrainingBenchmark,
    "generation": GenerationBenchmark,
}
_OUT = "write FILE.json and FILE.md after each measurement; the same command resumes"
_OPTIONS = (
    ("--row", "row with the sizes of the models", str, "base", "ROW"),
    ("--attention", "kinds of attention, or all", some_of(KINDS), "all", "KIND,..."),
    ("--dtype", f"{', '.join(DTYPES)}, or all", some_of(DTYPES), "float32", "TYPE,..."),
    ("--threads", "CPU threads", positive, omp_threads(cores()), "N"),
    ("--repetitions", "rounds of measurement", positive, 5, "N"),
    ("--vocab-size", "words of the joined vocabulary", at_least(16), VOCABULARY, "N"),
    ("--out", _OUT, Path, None, "FILE"),
)
#: Settings that the reports list; the command, which they quote, has the others.
_FIXED = ("row", "device", "threads", "vocab_size", "repetitions", "seed")
Workers = dict[str, ProcessPoolExecutor]  # a pool of one process for each variant
_ADVICE = "leave it out, or choose smaller batches"
_benchmarks: dict[str, Benchmark] = {}  # in a worker process: that of its variant


def add_arguments(parser: ArgumentParser) -> None:
    """Add the options of ``fairseq-mhe bench``."""
    benchmarks = parser.add_subparsers(dest="bench", required=True, metavar="WHAT")
    for name, benchmark in BENCHMARKS.items():
        command = benchmarks.add_parser(
            name, help=benchmark.title, description=benchmark.title
        )
        add = command.add_argument
        device = "cuda" if torch.cuda.is_available() else "cpu"
        help_ = "device to measure (default: %(default)s)"
        add("--device", choices=["cpu", "cuda"], default=device, help=help_)
        for flag, text, convert, default, metavar in (*_OPTIONS, *benchmark.options):
            text += "" if default is None else " (default: %(default)s)"
            add(flag, type=convert, default=default, metavar=metavar, help=text)
        for flag, text in benchmark.flags.items():
            add(flag, action="store_true", help=text)
        add_seed(command)
        command.set_defaults(**benchmark.defaults)


def run(args: Namespace) -> None:
    """Measure the cells that ``--out`` lacks; print the report and write it to ``--out``."""
    benchmark = BENCHMARKS[args.bench]
    sizes(args.row)  # raises UserError for an unknown row
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
    json_path = Path(f"{out}.json")
    markdown_path = Path(f"{out}.md")
    if out and output_folder(json_path.parent) and json_path.exists():
        existing = read_json(json_path)
        same = ("command", "machine", "software")
        other = [name for name in same if existing.get(name) != results[name]]
        if other:
            problem = f"{json_path} was measured with another {', '.join(other)}"
            raise UserError(f"{problem} (see {out}.md): remove both, or change --out")
        if len(existing["cells"]) < len(cells):
            results = existing
    elif out and markdown_path.exists():
        raise UserError(f"{out}.md has no .json beside it: remove it, or change --out")
    with workers(variants, args) as started, Board("turns") as board:
        for cell in cells[len(results["cells"]) :]:
            name = label(cell)
            board.add(name, len(started) * args.repetitions)
            progress = partial(board.update, name)
            measured = measure(started, cell, args.repetitions, progress)
            results["cells"].append({"cell": cell, "variants": measured})
            text = markdown(benchmark, results)
            if out:
                write_json(json_path, results)
                write_text(markdown_path, text)
    print(text)


@contextlib.contextmanager
def workers(types: dict[str, type[Benchmark]], settings: Namespace) -> Iterator[Workers]:
    """Start a process for each variant, from a fork server that has not started CUDA."""
    # Otherwise torch's profiler prints lines when it starts and when older memory is freed.
    os.environ.update(KINETO_LOG_LEVEL="99", TORCH_CPP_LOG_LEVEL="ERROR")
    context = multiprocessing.get_context("forkserver")
    modules = {benchmark.__module__ for benchmark in types.values()}
    context.set_forkserver_preload([__name__, *modules])
    started = {}
    for variant, benchmark in types.items():
        started[variant] = ProcessPoolExecutor(
            1, context, _start, (benchmark, variant, settings)
        )
    try:
        yield started
    finally:
        for process in multiprocessing.active_children():
            process.kill()
        for pool in started.values():
            pool.shutdown()  # otherwise Python, at its exit, may write to a broken pool


def _start(benchmark: type[Benchmark], variant: str, settings: Namespace) -> None:
    end_with_parent()
    logging.disable(logging.WARNING)
    warnings.simplefilter("ignore")
    torch.set_num_threads(settings.threads)
    _benchmarks[variant] = benchmark(variant, settings)


def _call(variant: str, method: str, *arguments: Any) -> Any:
    """Call this process's benchmark; UserError if its options are wrong or memory runs out."""
    try:
        return getattr(_benchmarks[variant], method)(*arguments)
    except (MemoryError, RuntimeError) as error:
        if str(error).startswith("Library "):  # CTranslate2 misses a library of CUDA 12
            how = "pip install nvidia-cublas-cu12, and name its folder in LD_LIBRARY_PATH"
            raise UserError(f"{variant}: {error}: {how}") from None
        if isinstance(error, RuntimeError) and "memory" not in str(error):
            raise
        reason = str(error).partition("\n")[0]
        raise UserError(f"{variant} ran out of memory ({reason}): {_ADVICE}") from None


def measure(
    workers: Workers, cell: Values, repetitions: int, progress: Callable[[int], None]
) -> dict[str, Values]:
    """Measure a cell in rounds: each times every variant once and begins with a different one.

    Returns for each variant its benchmark's result, and ``seconds``: a list for each part. Raises
    UserError if a variant cannot be built or runs out of memory, or if its process is killed.
    """
    variants = list(workers)
    results: dict[str, Values] = {
        name: {"seconds": defaultdict(list)} for name in variants
    }

    def call(variant: str, method: str, *arguments: Any) -> Any:
        try:
            return workers[variant].submit(_call, variant, method, *arguments).result()
        except BrokenProcessPool:
            raise UserError(f"the process of {variant} was killed: {_ADVICE}") from None

    for variant in variants:
        call(variant, "begin", cell)
    turns = 0
    for number in range(repetitions):
        first = number % len(variants)
        for variant in variants[first:] + variants[:first]:
            for part, seconds in call(variant, "turn").items():
                results[variant]["seconds"][part].append(seconds)
            turns += 1
            progress(turns)
    for variant in variants:
        results[variant] |= call(variant, "result")
    return results
