"""``fairseq-mhe bench``: stock fairseq's Transformer and ours, measured side by side."""

import argparse
import os
import shlex
import time
from functools import partial
from pathlib import Path
from typing import Any

import torch

from fairseq_mhe.attention import KINDS
from fairseq_mhe.bench.attention import AttentionBenchmark, MemoryBenchmark
from fairseq_mhe.bench.benchmark import DTYPES, STOCK, Benchmark
from fairseq_mhe.bench.generation import GenerationBenchmark
from fairseq_mhe.bench.report import label, markdown
from fairseq_mhe.bench.training import TrainingBenchmark
from fairseq_mhe.bench.turns import measure, workers
from fairseq_mhe.common.arguments import at_least, positive, seed, some_of
from fairseq_mhe.common.errors import UserError
from fairseq_mhe.common.files import output_folder, write_json, write_text
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
#: What the reports say was held fixed; the command names the rest.
_SETTINGS = (
    *("row", "device", "threads", "vocabulary", "seed"),
    *("seconds", "batches", "repetitions"),
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of ``fairseq-mhe bench``."""
    benchmarks = parser.add_subparsers(dest="bench", required=True, metavar="WHAT")
    for name, benchmark in BENCHMARKS.items():
        title = benchmark.title
        own = benchmarks.add_parser(name, help=title, description=title)
        _add_common(own)
        benchmark.add_options(own)


def run(args: argparse.Namespace) -> None:
    """Measure every cell, and print the results as Markdown.

    If a file is named, they are written to it as JSON and Markdown after each cell.
    """
    benchmark, board = BENCHMARKS[args.bench], Board("turns")
    sizes(args.row)
    if args.device == "cuda" and not torch.cuda.is_available():
        raise UserError("--device cuda: torch sees no GPU here; use --device cpu")
    cells, variants = list(benchmark.cells(args)), benchmark.variants(args)
    out = args.out
    if out:
        out = out.with_suffix("") if out.suffix in (".json", ".md") else out
        output_folder(out.parent)
    results: dict[str, Any] = {
        "benchmark": args.bench,
        "command": shlex.join(["fairseq-mhe", *args.typed]),
        "machine": machine(args.device),
        "software": software(),
        "settings": {name: value for name, value in vars(args).items() if name in _SETTINGS},
        **_moment(),
        "cells": [],
    }
    with workers(variants, args) as started, board:
        for cell in cells:
            entry, progress = {"cell": cell, **_moment()}, partial(board.update, label(cell))
            board.add(label(cell), len(started) * args.repetitions)
            measured = measure(started, cell, args.repetitions, progress)
            for variant, result in measured.items():
                kind = "mha" if variant == STOCK else variant
                # Nobody knows the bytes of smaller numbers.
                if kind in KINDS:
                    result.update(benchmark.limits(kind, args, cell, result))
            results["cells"].append({**entry, "variants": measured})
            text = markdown(benchmark, results)
            if out:
                write_json(Path(f"{out}.json"), results)
                write_text(Path(f"{out}.md"), text)
    print(text)


def _moment() -> dict[str, Any]:
    date = time.strftime("%Y-%m-%dT%H:%M:%S%z")
    return {"date": date, "load_average": round(os.getloadavg()[0], 2)}


def _add_common(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("--row", default="base", help="size of the models (default: %(default)s)")
    text = "kinds to compare with stock fairseq's transformer, or all (default: all)"
    add("--attention", type=some_of(KINDS), default="all", metavar="KIND,...", help=text)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    add("--device", choices=["cpu", "cuda"], default=device, help="default: %(default)s")
    text = f"{', '.join(DTYPES)}, or all (default: float32)"
    add("--dtype", type=some_of(DTYPES), default="float32", metavar="TYPE,...", help=text)
    text = "CPU threads (default: all cores, %(default)s)"
    add("--threads", type=positive, default=cores(), metavar="N", help=text)
    text = "rounds (default: %(default)s)"
    add("--repetitions", type=positive, default=5, metavar="N", help=text)
    words: dict[str, Any] = {"dest": "vocabulary", "type": at_least(16), "default": VOCABULARY}
    add("--vocab-size", **words, metavar="N", help="joined vocabulary (default: %(default)s)")
    text = "seed of weights and data (default: %(default)s)"
    add("--seed", type=seed, default=1, metavar="N", help=text)
    text = "write FILE.json and FILE.md, after each cell anew"
    add("--out", type=Path, metavar="FILE", help=text)
