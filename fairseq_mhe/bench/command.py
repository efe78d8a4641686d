"""``fairseq-mhe bench``: stock fairseq's Transformer and ours, measured side by side, with the floor beside them."""

from __future__ import annotations

import argparse
import itertools
import json
import os
import shlex
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

from fairseq_mhe.attention import VARIANTS
from fairseq_mhe.bench import attention, ctranslate
from fairseq_mhe.bench.compare import measure, summaries
from fairseq_mhe.bench.floor import floor, limits
from fairseq_mhe.bench.models import sizes
from fairseq_mhe.bench.report import label, markdown
from fairseq_mhe.bench.settings import CTRANSLATE2, DTYPES, INT8, STOCK, Settings
from fairseq_mhe.bench.worker import OK, Worker
from fairseq_mhe.bench.workload import Cell
from fairseq_mhe.common.errors import UserError
from fairseq_mhe.common.files import check_writable, write_json, write_text
from fairseq_mhe.common.progress import Board
from fairseq_mhe.common.system import cores, machine, software
from fairseq_mhe.models.build import VOCABULARY

#: fairseq's models know positions up to here.
LONGEST = 1024
#: Tokens of a batch unless said otherwise: what a CPU does in seconds, and what keeps a GPU busy.
_ATTENTION_TOKENS = {"cpu": 2048, "cuda": 16384}
_TRAINING_TOKENS = {"cpu": 1024, "cuda": 4096}
_BENCHMARKS = {
    "attention": "one attention sublayer, forward and backward, and step by step",
    "training": "a full training step by fairseq's Trainer",
    "generation": "translation by fairseq's beam search",
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of ``fairseq-mhe bench``."""
    benchmarks = parser.add_subparsers(dest="bench", required=True, metavar="WHAT")
    for name, help_line in _BENCHMARKS.items():
        bench = benchmarks.add_parser(name, help=help_line, description=help_line)
        _add_common(bench)
        _SPECIFIC[name](bench)


def run(args: argparse.Namespace) -> None:
    """Measure every cell, write JSON and Markdown if a file is named, and print the Markdown."""
    _check(args)
    settings = _settings(args)
    header = {
        "benchmark": args.bench,
        "command": command_line(args),
        "machine": machine(args.device),
        "software": software(),
        "settings": _shown(args),
    }
    out = (
        None
        if args.out is None
        else Path(args.out).with_suffix("")
        if _known(args.out)
        else Path(args.out)
    )
    if out is not None:
        check_writable(out.absolute().parent)
    entries = _measured(args, settings, header, out)
    results = {
        **header,
        "date": entries[0]["date"],
        "load_average": entries[0]["load_average"],
        "cells": entries,
    }
    text = markdown(results)
    if out is not None:
        write_json(_named(out, ".json"), results)
        write_text(_named(out, ".md"), text)
        _named(out, ".partial.json").unlink(missing_ok=True)
    print(text)


def command_line(args: argparse.Namespace) -> str:
    """The command with every option's value, defaults too: what to type to measure the same again."""
    words = ["fairseq-mhe", "bench", args.bench]
    for name, value in vars(args).items():
        if name in ("command", "bench", "typed") or value is None or value is False:
            continue
        words.append(f"--{name.replace('_', '-')}")
        if value is not True:
            words.append(",".join(map(str, value)) if isinstance(value, list) else str(value))
    return shlex.join(words)


def cells(args: argparse.Namespace) -> list[Cell]:
    """What to compare, one after another."""
    return list(_CELLS[args.bench](args))


def _measured(
    args: argparse.Namespace, settings: Settings, header: Mapping[str, Any], out: Path | None
) -> list[dict[str, Any]]:
    """Every cell's entry in the results; those that a run of the same command was stopped after are not made again."""
    partial = None if out is None else _named(out, ".partial.json")
    entries = _entries_so_far(partial, header)
    workers = {name: Worker(name, settings) for name in _variants(args)}
    try:
        with Board("turns") as board:
            for cell in cells(args)[len(entries) :]:
                entries.append(_entry(workers, settings, cell, args.repetitions, board))
                if partial is not None:
                    write_json(partial, {"header": header, "cells": entries})
    finally:
        for worker in workers.values():
            worker.stop()
    return entries


def _entry(
    workers: Mapping[str, Worker], settings: Settings, cell: Cell, repetitions: int, board: Board
) -> dict[str, Any]:
    name, turns = label(cell), itertools.count(1)
    started = {
        "date": time.strftime("%Y-%m-%dT%H:%M:%S%z"),
        "load_average": round(os.getloadavg()[0], 2),
    }
    board.add(name, len(workers) * repetitions)

    def progress() -> None:
        board.update(name, next(turns))
        board.tick()

    found = summaries(measure(workers, cell, repetitions, progress))
    measured = {variant: result for variant, result in found.items() if result["status"] == OK}
    for variant, result in measured.items():
        mha = floor(STOCK, settings, cell, result)
        if mha is not None:
            result.update(limits(floor(variant, settings, cell, result), mha))
    ratios = (
        f"{n} {r['relative']['median']:.2f}"
        for n, r in measured.items()
        if r["relative"] and n != STOCK
    )
    board.say(f"{name}: {STOCK} 1.00, {', '.join(ratios)}")
    return {"cell": dict(cell), **started, "variants": found}


def _entries_so_far(partial: Path | None, header: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The finished cells of a stopped run of the same command, code and machine; none where anything differs."""
    if partial is None or not partial.exists():
        return []
    before = json.loads(partial.read_text(encoding="utf-8"))
    return before["cells"] if before["header"] == json.loads(json.dumps(header)) else []


def _variants(args: argparse.Namespace) -> list[str]:
    ours = args.attention
    int8 = [f"{kind}{INT8}" for kind in ours] if getattr(args, "int8", False) else []
    return [STOCK, *ours, *int8, *([CTRANSLATE2] if getattr(args, "ctranslate2", False) else [])]


def _settings(args: argparse.Namespace) -> Settings:
    return Settings(
        args.bench, args.row, args.device, args.threads, args.vocab_size, args.seed, **_own(args)
    )


def _own(args: argparse.Namespace) -> dict[str, Any]:
    """Settings that one benchmark has and the others have not."""
    return {name: getattr(args, name) for name in ("batches", "seconds") if hasattr(args, name)}


def _shown(args: argparse.Namespace) -> dict[str, Any]:
    common = {
        "row": args.row,
        "device": args.device,
        "threads": args.threads,
        "vocabulary": args.vocab_size,
    }
    return {**common, "seed": args.seed, "repetitions": args.repetitions, **_own(args)}


def _check(args: argparse.Namespace) -> None:
    """Refuse what cannot work before anything is measured."""
    sizes(args.row)
    if args.device == "cuda" and not torch.cuda.is_available():
        raise UserError("--device cuda: torch sees no GPU here; use --device cpu")
    for length in (
        *getattr(args, "lengths", []),
        *filter(None, [getattr(args, "source_length", None)]),
    ):
        if not 2 <= length <= LONGEST:
            raise UserError(f"a length of {length} does not fit: lengths go from 2 to {LONGEST}")
    if getattr(args, "ctranslate2", False):
        ctranslate.check_installed()
    if getattr(args, "int8", False) and (args.device != "cpu" or args.dtype != ["float32"]):
        raise UserError("--int8 is for --device cpu and --dtype float32")


def _attention_cells(args: argparse.Namespace) -> Iterator[Cell]:
    tokens = args.tokens or _ATTENTION_TOKENS[args.device]
    for dtype, place, length in itertools.product(args.dtype, args.places, args.lengths):
        yield {"place": place, "length": length, "batch": max(1, tokens // length), "dtype": dtype}


def _training_cells(args: argparse.Namespace) -> Iterator[Cell]:
    for dtype, tokens in itertools.product(
        args.dtype, args.max_tokens or [_TRAINING_TOKENS[args.device]]
    ):
        yield {"max_tokens": tokens, "dtype": dtype}


def _generation_cells(args: argparse.Namespace) -> Iterator[Cell]:
    for dtype, beam, length, batch in itertools.product(
        args.dtype, args.beams, args.lengths, args.batch_sizes
    ):
        source = args.source_length or length
        yield {
            "beam": beam,
            "length": length,
            "source_length": source,
            "batch": batch,
            "dtype": dtype,
        }


_CELLS: dict[str, Callable[[argparse.Namespace], Iterator[Cell]]] = {
    "attention": _attention_cells,
    "training": _training_cells,
    "generation": _generation_cells,
}


def _add_common(parser: argparse.ArgumentParser) -> None:
    default_device = "cuda" if torch.cuda.is_available() else "cpu"
    parser.add_argument("--row", default="base", help="size of the models (default: %(default)s)")
    parser.add_argument(
        "--attention",
        type=_one_of(VARIANTS),
        default=list(VARIANTS),
        metavar="KIND,...",
        help="kinds to compare with stock fairseq's transformer, or all (default: all)",
    )
    parser.add_argument(
        "--device", choices=["cpu", "cuda"], default=default_device, help="default: %(default)s"
    )
    parser.add_argument(
        "--dtype",
        type=_one_of(DTYPES),
        default=["float32"],
        metavar="TYPE,...",
        help=f"{', '.join(DTYPES)}, or all (default: float32)",
    )
    parser.add_argument(
        "--threads",
        type=_positive,
        default=cores(),
        metavar="N",
        help="CPU threads (default: all cores, %(default)s)",
    )
    parser.add_argument(
        "--repetitions",
        type=_positive,
        default=5,
        metavar="N",
        help="rounds (default: %(default)s)",
    )
    parser.add_argument(
        "--vocab-size",
        type=_at_least(16),
        default=VOCABULARY,
        metavar="N",
        help="joined vocabulary (default: %(default)s)",
    )
    parser.add_argument(
        "--seed",
        type=int,
        default=1,
        metavar="N",
        help="of weights and data (default: %(default)s)",
    )
    parser.add_argument(
        "--out",
        metavar="FILE",
        help="write FILE.json and FILE.md; stopped, the same command goes on from there",
    )


def _add_attention(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--places",
        type=_one_of(attention.PLACES),
        default=list(attention.PLACES),
        metavar="PLACE,...",
        help=f"{', '.join(attention.PLACES)}, or all (default: all)",
    )
    parser.add_argument(
        "--lengths",
        type=_integers,
        default=[32, 64, 128, 256, 512, 1024],
        metavar="N,...",
        help="tokens of source and target (default: 32,64,128,256,512,1024)",
    )
    defaults = " or ".join(f"{tokens} on {device}" for device, tokens in _ATTENTION_TOKENS.items())
    parser.add_argument(
        "--tokens", type=_positive, metavar="N", help=f"tokens of a batch (default: {defaults})"
    )
    parser.add_argument(
        "--seconds",
        type=_seconds,
        default=0.2,
        metavar="S",
        help="a repetition calls the sublayer again and again for about this long (default: %(default)s)",
    )


def _add_training(parser: argparse.ArgumentParser) -> None:
    defaults = " or ".join(f"{tokens} on {device}" for device, tokens in _TRAINING_TOKENS.items())
    parser.add_argument(
        "--max-tokens",
        type=_integers,
        metavar="N,...",
        help=f"fairseq's --max-tokens (default: {defaults})",
    )
    parser.add_argument(
        "--batches",
        type=_positive,
        default=4,
        metavar="N",
        help="updates of a repetition (default: %(default)s)",
    )


def _add_generation(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--beams",
        type=_integers,
        default=[1, 5],
        metavar="N,...",
        help="hypotheses; 1 is greedy (default: 1,5)",
    )
    parser.add_argument(
        "--lengths",
        type=_integers,
        default=[25, 100, 400],
        metavar="N,...",
        help="tokens of every output (default: 25,100,400)",
    )
    parser.add_argument(
        "--source-length",
        type=_positive,
        metavar="N",
        help="tokens of the longest source (default: the output's)",
    )
    parser.add_argument(
        "--batch-sizes",
        type=_integers,
        default=[1, 8, 32],
        metavar="N,...",
        help="sentences (default: 1,8,32)",
    )
    parser.add_argument(
        "--int8", action="store_true", help="also time each of --attention with int8_generation"
    )
    parser.add_argument(
        "--ctranslate2",
        action="store_true",
        help="also time CTranslate2 with the stock model in int8",
    )


_SPECIFIC: dict[str, Callable[[argparse.ArgumentParser], None]] = {
    "attention": _add_attention,
    "training": _add_training,
    "generation": _add_generation,
}


def _at_least(least: int) -> Callable[[str], int]:
    def convert(text: str) -> int:
        if not text.isdecimal() or int(text) < least:
            raise argparse.ArgumentTypeError(f"{text!r} is no whole number of at least {least}")
        return int(text)

    return convert


_positive = _at_least(1)


def _seconds(text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = 0.0
    if not 0 < seconds < float("inf"):
        raise argparse.ArgumentTypeError(f"{text!r} is no positive number of seconds")
    return seconds


def _integers(text: str) -> list[int]:
    return [_positive(word) for word in text.split(",")]


def _one_of(known: Sequence[str] | Mapping[str, Any]) -> Callable[[str], list[str]]:
    def convert(text: str) -> list[str]:
        if text == "all":
            return list(known)
        for word in text.split(","):
            if word not in known:
                raise argparse.ArgumentTypeError(
                    f"unknown {word!r}; choose of: {', '.join(known)}, or all"
                )
        return list(dict.fromkeys(text.split(",")))

    return convert


def _known(path: str) -> bool:
    return Path(path).suffix in (".json", ".md")


def _named(out: Path, ending: str) -> Path:
    return out.with_name(out.name + ending)
