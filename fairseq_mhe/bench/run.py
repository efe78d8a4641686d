"""``fairseq-mhe bench``: stock fairseq's Transformer and ours, measured side by side."""

import argparse
import itertools
import json
import os
import shlex
import time
from collections.abc import Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any

import torch

from fairseq_mhe.attention import KINDS
from fairseq_mhe.bench.attention import AttentionBenchmark, MemoryBenchmark
from fairseq_mhe.bench.benchmark import (
    APPROXIMATE,
    DTYPES,
    STOCK,
    Benchmark,
    Cell,
    Settings,
    limits,
)
from fairseq_mhe.bench.generation import GenerationBenchmark
from fairseq_mhe.bench.report import label, markdown
from fairseq_mhe.bench.training import TrainingBenchmark
from fairseq_mhe.bench.turns import OK, Worker, measure, workers
from fairseq_mhe.common.arguments import at_least, positive, seed, some_of
from fairseq_mhe.common.errors import UserError
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


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of ``fairseq-mhe bench``."""
    benchmarks = parser.add_subparsers(dest="bench", required=True, metavar="WHAT")
    for name, benchmark in BENCHMARKS.items():
        title = benchmark.title
        own = benchmarks.add_parser(name, help=title, description=title)
        _add_common(own)
        benchmark.add_options(own)


def run(args: argparse.Namespace) -> None:
    """Measure every cell, write JSON and Markdown if a file is named, and print the Markdown."""
    benchmark = BENCHMARKS[args.bench]
    sizes(args.row)
    if args.device == "cuda" and not torch.cuda.is_available():
        raise UserError("--device cuda: torch sees no GPU here; use --device cpu")
    cells, variants = list(benchmark.cells(args)), benchmark.variants(args)
    out = args.out
    if out:
        out = out.with_suffix("") if out.suffix in (".json", ".md") else out
        output_folder(out.parent)
    names = {field.name for field in fields(Settings)}
    fixed = {name: value for name, value in vars(args).items() if name in names}
    settings = Settings(**fixed)
    header = {
        "benchmark": args.bench,
        "command": shlex.join(["fairseq-mhe", *args.typed]),
        "machine": machine(args.device),
        "software": software(),
        "settings": {**fixed, "repetitions": args.repetitions},
    }
    partial = Path(f"{out}.partial.json")
    entries = _measured_before(partial, header) if out else []
    with workers(variants, settings) as started, Board("turns") as board:
        for cell in cells[len(entries) :]:
            entries.append(_entry(benchmark, started, settings, cell, args.repetitions, board))
            if out:
                write_json(partial, {"header": header, "cells": entries})
    first = {name: entries[0][name] for name in ("date", "load_average")}
    results = {**header, **first, "cells": entries}
    text = markdown(benchmark, results)
    if out:
        write_json(Path(f"{out}.json"), results)
        write_text(Path(f"{out}.md"), text)
        partial.unlink()
    print(text)


def _entry(
    benchmark: type[Benchmark],
    started: Mapping[str, Worker],
    settings: Settings,
    cell: Cell,
    repetitions: int,
    board: Board,
) -> dict[str, Any]:
    """Measure a cell."""
    name, date, load = label(cell), time.strftime("%Y-%m-%dT%H:%M:%S%z"), os.getloadavg()[0]
    board.add(name, len(started) * repetitions)
    turns = itertools.count(1)
    results = measure(started, cell, repetitions, lambda: board.update(name, next(turns)))
    for variant, result in results.items():
        # Nobody knows the bytes of smaller numbers.
        if result["status"] == OK and not variant.endswith(APPROXIMATE):
            floors = (benchmark.floor(of, settings, cell, result) for of in (variant, STOCK))
            result.update(limits(*floors))
    return {
        "cell": dict(cell),
        "date": date,
        "load_average": round(load, 2),
        "variants": results,
    }


def _measured_before(partial: Path, header: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The finished cells of a stopped run of the same command, code and machine."""
    before: dict[str, Any] = read_json(partial) if partial.exists() else {}
    is_same = before.get("header") == json.loads(json.dumps(header))
    return before["cells"] if is_same else []


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
    text = "joined vocabulary (default: %(default)s)"
    least = at_least(16)
    add(
        "--vocab-size",
        dest="vocabulary",
        type=least,
        default=VOCABULARY,
        metavar="N",
        help=text,
    )
    text = "of weights and data (default: %(default)s)"
    add("--seed", type=seed, default=1, metavar="N", help=text)
    text = "write FILE.json and FILE.md; stopped, the same command goes on from there"
    add("--out", type=Path, metavar="FILE", help=text)
