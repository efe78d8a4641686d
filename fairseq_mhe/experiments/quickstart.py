"""``fairseq-mhe quickstart``: MHA against MHE on the embedded corpus, from text to table."""

import argparse
from dataclasses import replace
from pathlib import Path

from rich.console import Console

from fairseq_mhe.attention import KINDS
from fairseq_mhe.common.arguments import at_least, positive, seed
from fairseq_mhe.common.files import output_folder
from fairseq_mhe.common.progress import say
from fairseq_mhe.experiments import cells
from fairseq_mhe.experiments.table import TableRun
from fairseq_mhe.prepare.corpora.home_assistant import HomeAssistant
from fairseq_mhe.prepare.data_folder import open_data
from fairseq_mhe.prepare.progress import shown_progress
from fairseq_mhe.report.translation_table import QUICKSTART as QUICKSTART_TABLE
from fairseq_mhe.report.translation_table import show_table
from fairseq_mhe.runs import devices
from fairseq_mhe.runs.recipes import recipe
from fairseq_mhe.runs.translation import plan_jobs

#: The recipe's.
_UPDATES = 3000


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of ``fairseq-mhe quickstart``."""
    add = parser.add_argument
    help_ = "folder of it all (default: %(default)s)"
    add("--out", type=Path, default=Path("runs/quickstart"), help=help_)
    help_ = f"kinds to compare, or all (default: %(default)s; there are: {', '.join(KINDS)})"
    add("--attention", type=cells.kinds, default="mha,mhe_mul", metavar="KIND,...", help=help_)
    add("--seed", type=seed, default=1, metavar="N", help="random seed (default: %(default)s)")
    help_ = "updates of each training (default: %(default)s)"
    add("--updates", type=positive, default=_UPDATES, metavar="N", help=help_)
    help_ = "use about N pairs of the corpus only, for a trial"
    add("--limit", type=at_least(10), metavar="N", help=help_)
    devices.add_arguments(parser)


def run(args: argparse.Namespace) -> None:
    """Do it all, or what is not done yet, and print the table."""
    out = output_folder(args.out)
    device, precision = devices.asked_for(args, len(args.attention)), devices.precision(args)
    tiny = recipe("tiny")
    training = tiny.training.shortened(args.updates).with_precision(precision)
    say(f"1 of 2: prepare {args.limit or 'all'} pairs of the embedded English-German corpus")
    folder = out / (f"data-limit{args.limit}" if args.limit else "data")
    with shown_progress():
        HomeAssistant(out=folder, limit=args.limit).prepare()
    data = open_data(folder)
    kinds = ", ".join(args.attention)
    say(f"2 of 2: train, translate and score {kinds}; {args.updates} updates each")
    say(f"  {device.describe(precision)}")
    chosen = replace(tiny, training=training)
    jobs = plan_jobs(chosen, args.attention, [args.seed], data, out)
    table = TableRun(jobs, data, out)
    table.work(device)
    pairs = data.manifest["lines"]["train"]
    title = f"Home Assistant en-de, {pairs:,} pairs, {args.updates:,} updates"
    if args.limit or args.updates != _UPDATES:
        title += ", a trial and no result"
    table.tabulate(title, QUICKSTART_TABLE)
    show_table(out, title, Console())
    say(", ".join(str(out / name) for name in QUICKSTART_TABLE.files))
