"""``fairseq-mhe bench``: stock fairseq's Transformer and ours, measured side by side."""

import argparse
import json
import os
import shlex
import time
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch

from fairseq_mhe.attention import KINDS
from fairseq_mhe.bench.attention import AttentionBenchmark, MemoryBenchmark
from fairseq_mhe.bench.benchmark import DTYPES, STOCK, Benchmark, Cell, Settings, limits
from fairseq_mhe.bench.generation import GenerationBenchmark
from fairseq_mhe.bench.report import label, markdown
from fairseq_mhe.bench.training import TrainingBenchmark
from fairseq_mhe.bench.turns import OK, measure, summaries
from fairseq_mhe.bench.worker import Worker, workers
from fairseq_mhe.common.arguments import as_words, at_least, positive, seed, some_of
from fairseq_mhe.common.errors import UserError
from fairseq_mhe.common.files import check_writable, read_json, write_json, write_text
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
    out = Path(args.out) if args.out is not None else None
    if out:
        out = out.with_suffix("") if out.suffix in (".json", ".md") else out
        check_writable(out.absolute().parent)
    settings = Settings(
        row=args.row,
        device=args.device,
        threads=args.threads,
        vocabulary=args.vocab_size,
        seed=args.seed,
        own={name: getattr(args, name) for name in benchmark.own},
    )
    header = _header(args, settings)
    partial = Path(f"{out}.partial.json")
    entries = _entries_so_far(partial, header) if out else []
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
        partial.unlink(missing_ok=True)
    print(text)


def _header(args: argparse.Namespace, settings: Settings) -> dict[str, Any]:
    """What the results say of the run as a whole.

    ``command`` is the command with every option's value, defaults too, to measure the same again.
    """
    told, options = asdict(settings), dict(vars(args))
    own = told.pop("own")
    for name in ("command", "bench", "typed"):
        options.pop(name, None)
    return {
        "benchmark": args.bench,
        "command": shlex.join(["fairseq-mhe", "bench", args.bench, *as_words(options)]),
        "machine": machine(args.device),
        "software": software(),
        "settings": {**told, "repetitions": args.repetitions, **own},
    }


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
    found = summaries(measure(started, cell, repetitions, lambda: board.advance(name)))
    ratios = []
    for variant, result in found.items():
        if result["status"] != OK:
            continue
        mha = benchmark.floor(STOCK, settings, cell, result)
        result.update(limits(benchmark.floor(variant, settings, cell, result), mha))
        if result["relative"]:
            ratios.append(f"{variant} {result['relative']['median']:.2f}")
    board.say(f"{name}: {', '.join(ratios)}")
    started_at = {"date": date, "load_average": round(load, 2)}
    return {"cell": dict(cell), **started_at, "variants": found}


def _entries_so_far(partial: Path, header: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The finished cells of a stopped run of the same command, code and machine.

    Not `common.steps`: a finished run is measured anew, and its cells have no files of their own.
    """
    if not partial.exists():
        return []
    before = read_json(partial)
    cells: list[dict[str, Any]] = before["cells"]
    return cells if before["header"] == json.loads(json.dumps(header)) else []


def _add_common(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("--row", default="base", help="size of the models (default: %(default)s)")
    text = "kinds to compare with stock fairseq's transformer, or all (default: all)"
    kinds = list(KINDS)
    add("--attention", type=some_of(KINDS), default=kinds, metavar="KIND,...", help=text)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    add("--device", choices=["cpu", "cuda"], default=device, help="default: %(default)s")
    text = f"{', '.join(DTYPES)}, or all (default: float32)"
    add("--dtype", type=some_of(DTYPES), default=["float32"], metavar="TYPE,...", help=text)
    text = "CPU threads (default: all cores, %(default)s)"
    add("--threads", type=positive, default=cores(), metavar="N", help=text)
    text = "rounds (default: %(default)s)"
    add("--repetitions", type=positive, default=5, metavar="N", help=text)
    text = "joined vocabulary (default: %(default)s)"
    add("--vocab-size", type=at_least(16), default=VOCABULARY, metavar="N", help=text)
    text = "of weights and data (default: %(default)s)"
    add("--seed", type=seed, default=1, metavar="N", help=text)
    text = "write FILE.json and FILE.md; stopped, the same command goes on from there"
    add("--out", metavar="FILE", help=text)
