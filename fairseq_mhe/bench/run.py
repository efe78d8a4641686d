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
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import torch

from fairseq_mhe import fairseq_fixes
from fairseq_mhe.bench.attention import AttentionBenchmark
from fairseq_mhe.bench.benchmark import Benchmark, Options, Values
from fairseq_mhe.bench.compare import moved, read_baseline
from fairseq_mhe.bench.generation import GenerationBenchmark
from fairseq_mhe.bench.report import label, markdown
from fairseq_mhe.bench.training import TrainingBenchmark
from fairseq_mhe.bench.variants import Variant
from fairseq_mhe.common.arguments import add_options, from_options
from fairseq_mhe.common.child import end_with_parent
from fairseq_mhe.common.errors import UserError
from fairseq_mhe.common.files import output_folder, read_json, write_json, write_text
from fairseq_mhe.common.progress import Board
from fairseq_mhe.common.system import machine, software
from fairseq_mhe.models.architectures import sizes

BENCHMARKS: dict[str, type[Benchmark]] = {
    "attention": AttentionBenchmark,
    "training": TrainingBenchmark,
    "generation": GenerationBenchmark,
}
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
        add_options(command, benchmark.options)


def run(args: Namespace) -> int:
    """Measure the cells that ``--out`` lacks; print the report and write it to ``--out``.

    Returns 1 if ``--baseline`` is given and a ratio moved, otherwise 0.
    """
    benchmark = BENCHMARKS[args.bench]
    options: Options = from_options(benchmark.options, args)
    device = options.device or ("cuda" if torch.cuda.is_available() else "cpu")
    options = replace(options, device=device)
    sizes(options.row)  # raises UserError for an unknown row
    if device == "cuda" and not torch.cuda.is_available():
        raise UserError("--device cuda: torch sees no GPU here; use --device cpu")
    cells = list(benchmark.cells(options))
    variants = benchmark.variants(options)
    results = empty_results(args, options)
    baseline = None
    if options.baseline:
        baseline = read_baseline(options.baseline, results, cells)
    out = str(options.out or "").removesuffix(".json").removesuffix(".md")
    if out:
        results = resumed(out, results, len(cells))
    text = ""
    with workers(benchmark, variants, options) as started, Board("turns") as board:
        for cell in cells[len(results["cells"]) :]:
            name = label(cell)
            board.add(name, len(started) * options.repetitions)
            progress = partial(board.update, name)
            measured = measure(started, cell, options.repetitions, progress)
            results["cells"].append({"cell": cell, "variants": measured})
            text = markdown(benchmark, results)
            if out:
                write_json(Path(f"{out}.json"), results)
                write_text(Path(f"{out}.md"), text)
    print(text)
    if baseline is None:
        return 0
    table, any_moved = moved(baseline, results)
    print(f"## Compared with {options.baseline}\n\n{table}")
    return int(any_moved)


def empty_results(args: Namespace, options: Options) -> Values:
    """Return results without cells: what is measured, by which command, when and where."""
    return {
        "benchmark": args.bench,
        "command": shlex.join(["fairseq-mhe", *args.typed]),
        "machine": machine(options.device),
        "software": software(),
        "settings": {name: getattr(options, name) for name in _FIXED},
        "date": time.strftime("%Y-%m-%dT%H:%M:%S%z"),
        "load_average": round(os.getloadavg()[0], 2),
        "cells": [],
    }


def resumed(out: str, results: Values, count: int) -> Values:
    """Return the unfinished results in ``out``.json, or ``results`` if there are none.

    ``count``: cells of finished results, which are measured anew. Raises UserError for results of
    another command, machine or software.
    """
    json_path = Path(f"{out}.json")
    markdown_path = Path(f"{out}.md")
    if output_folder(json_path.parent) and json_path.exists():
        existing = read_json(json_path)
        same = ("command", "machine", "software")
        other = [name for name in same if existing.get(name) != results[name]]
        if other:
            problem = f"{json_path} was measured with another {', '.join(other)}"
            raise UserError(f"{problem} (see {out}.md): remove both, or change --out")
        if len(existing["cells"]) < count:
            return existing
    elif markdown_path.exists():
        raise UserError(f"{out}.md has no .json beside it: remove it, or change --out")
    return results


@contextlib.contextmanager
def workers(
    benchmark: type[Benchmark], variants: Sequence[Variant], options: Options
) -> Iterator[Workers]:
    """Start a process for each variant, from a fork server that has not started CUDA."""
    # Otherwise torch's profiler prints lines when it starts and when older memory is freed.
    os.environ.update(KINETO_LOG_LEVEL="99", TORCH_CPP_LOG_LEVEL="ERROR")
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload([__name__])
    started = {}
    for variant in variants:
        made = (benchmark.of_variant(variant), variant, options)
        started[variant.name] = ProcessPoolExecutor(1, context, _start, made)
    try:
        yield started
    finally:
        for process in multiprocessing.active_children():
            process.kill()
        for pool in started.values():
            pool.shutdown()  # otherwise Python, at its exit, may write to a broken pool


def _start(benchmark: type[Benchmark], variant: Variant, options: Options) -> None:
    end_with_parent()
    fairseq_fixes.apply()
    logging.disable(logging.WARNING)
    warnings.simplefilter("ignore")
    torch.set_num_threads(options.threads)
    variant.begin()
    # Start CUDA here, because its start is no part of the first pass.
    torch.ones(1, device=options.device)
    _benchmarks[variant.name] = benchmark(variant, options)


def _call(variant: str, method: str, *arguments: Any) -> Any:
    """Call this process's benchmark; UserError if its options are wrong or memory runs out."""
    try:
        return getattr(_benchmarks[variant], method)(*arguments)
    except (MemoryError, RuntimeError) as error:
        if str(error).startswith("Library "):  # CTranslate2 misses a library of CUDA 12
            how = "pip install nvidia-cublas-cu12, and name its folder in LD_LIBRARY_PATH"
            raise UserError(f"{variant}: {error}: {how}") from None
        full = isinstance(error, (MemoryError, torch.OutOfMemoryError))
        # Not "an illegal memory access", which is a bug.
        words = ("out of memory", "allocate memory")
        if not full and not any(word in str(error) for word in words):
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
