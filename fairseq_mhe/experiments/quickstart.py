"""``fairseq-mhe quickstart``: MHA against MHE on the embedded corpus, from text to table."""

import argparse
import itertools
import time
from dataclasses import replace
from pathlib import Path

import torch
from rich.console import Console

from fairseq_mhe.attention import KINDS
from fairseq_mhe.common.arguments import at_least, positive, seed, some_of
from fairseq_mhe.common.files import output_folder
from fairseq_mhe.common.progress import say
from fairseq_mhe.common.steps import only_one
from fairseq_mhe.experiments.table_run import TableRun
from fairseq_mhe.prepare.corpora.home_assistant import HomeAssistant
from fairseq_mhe.prepare.data_folder import DataFolder, open_prepared
from fairseq_mhe.prepare.progress import shown_progress
from fairseq_mhe.report.translation_table import QUICKSTART as QUICKSTART_TABLE
from fairseq_mhe.report.translation_table import show_table
from fairseq_mhe.runs import precision
from fairseq_mhe.runs.devices import choose_device
from fairseq_mhe.runs.recipes import recipe

#: The recipe's.
_UPDATES = 3000


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of ``fairseq-mhe quickstart``."""
    add = parser.add_argument
    told = "folder of it all (default: %(default)s)"
    add("--out", type=Path, default=Path("runs/quickstart"), help=told)
    told = f"kinds to compare, or all (default: %(default)s; there are: {', '.join(KINDS)})"
    kinds = some_of(KINDS)
    add("--attention", type=kinds, default="mha,mhe_mul", metavar="KIND,...", help=told)
    add("--seed", type=seed, default=1, metavar="N", help="random seed (default: %(default)s)")
    told = "updates of each training (default: %(default)s)"
    add("--updates", type=positive, default=_UPDATES, metavar="N", help=told)
    told = "use about N pairs of the corpus only, for a trial"
    add("--limit", type=at_least(10), metavar="N", help=told)
    told = "what is scored; valid is for tuning"
    add("--subset", choices=("test", "valid"), default="test", help=told)
    add("--cpu", action="store_true", help="do not use a GPU")
    precision.add_argument(parser)


def run(args: argparse.Namespace) -> None:
    """Do it all, or what is not done yet, and print the table."""
    out = output_folder(args.out)
    started, steps = time.monotonic(), itertools.count(1)
    gpu = torch.cuda.is_available() and not args.cpu
    numbers = precision.chosen(args.precision, gpu)
    tiny = recipe("tiny")
    training = tiny.training.shortened(args.updates).with_precision(numbers)
    device = choose_device(len(args.attention), gpu)
    part = f", {args.limit} pairs of it" if args.limit else ""
    what = {
        "prepare": f"prepare the embedded English-German corpus{part}",
        "train": f"train {', '.join(args.attention)} ({args.updates} updates each) "
        f"{device.describe(numbers)}",
        "translate": f"translate {args.subset} with a beam of {tiny.decoding.beam}, "
        "one model after the other",
        "score": "score and compare",
    }

    def begin(step: str) -> None:
        seconds = round(time.monotonic() - started)
        say(f"[{seconds // 60}:{seconds % 60:02d}] step {next(steps)} of 4: {what[step]}")

    with only_one(out, below=False):
        begin("prepare")
        folder = out / (f"data-limit{args.limit}" if args.limit else "data")
        with shown_progress() as report:
            HomeAssistant(out=folder, limit=args.limit).prepare(report)
        data = open_prepared(folder)
        table_run = TableRun([], data, out, args.subset)
        table_run.open([replace(tiny, training=training)], args.attention, [args.seed])
        table_run.work(device, begin)
        title = _title(args, data)
        table_run.tabulate(title, QUICKSTART_TABLE)
    show_table(out, title, Console())
    say(", ".join(str(out / name) for name in QUICKSTART_TABLE.files))


def _title(args: argparse.Namespace, data: DataFolder) -> str:
    """The table's heading, which says so where it is of a trial."""
    pairs = data.manifest["lines"]["train"]
    title = f"Home Assistant en-de, {pairs:,} pairs, {args.updates:,} updates"
    if args.subset != "test":
        return f"{title}, on valid"
    whole = args.limit is None and args.updates == _UPDATES
    return title if whole else f"{title}, a trial and no result"
