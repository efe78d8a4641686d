"""``fairseq-mhe quickstart`` and ``quickstart-lm``: from the embedded corpus to a table."""

from argparse import ArgumentParser, Namespace
from pathlib import Path

from fairseq_mhe.attention import KINDS
from fairseq_mhe.common.arguments import add_seed, at_least, positive
from fairseq_mhe.common.files import output_folder
from fairseq_mhe.common.progress import say
from fairseq_mhe.experiments.language import LanguageTable
from fairseq_mhe.experiments.table import chosen_recipe, kinds, open_table
from fairseq_mhe.prepare.corpora.home_assistant import HomeAssistant, prepare_language
from fairseq_mhe.prepare.data_folder import open_data
from fairseq_mhe.prepare.manifest import TEXT
from fairseq_mhe.prepare.task_folder import open_task
from fairseq_mhe.report.translation_table import FILES, show_table
from fairseq_mhe.runs import devices


def quickstart_arguments(parser: ArgumentParser) -> None:
    add = parser.add_argument
    help_ = "folder for data, runs and table (default: %(default)s)"
    add("--out", type=Path, default=Path("runs/quickstart"), help=help_)
    help_ = f"kinds to compare, of {', '.join(KINDS)}, or all (default: %(default)s)"
    add("--attention", type=kinds, default="mha,mhe_mul", metavar="KIND,...", help=help_)
    add_seed(parser)
    help_ = "updates of each training (default: the recipe's)"
    add("--updates", type=positive, metavar="N", help=help_)
    help_ = "use only about N pairs of the corpus, for a trial"
    add("--limit", type=at_least(10), metavar="N", help=help_)
    devices.add_arguments(parser)
    # Options of run-table that the quickstart does not have, with run-table's defaults.
    defaults = {"recipe": None, "batch_tokens": None, "max_tokens": None}
    parser.set_defaults(**defaults, subset="test", bleu_tokenizer=None)


def quickstart(args: Namespace) -> None:
    """Prepare the corpus, train and score the unfinished models, and print the table."""
    out = output_folder(args.out)
    # Called for its UserError: a missing device must be known before the corpus is prepared.
    devices.choose_device(args, len(args.attention))
    pairs = f"{args.limit or 'all'} pairs"
    say(f"1 of 2: prepare {pairs} of the embedded English-German corpus")
    args.data = out / (f"data-limit{args.limit}" if args.limit else "data")
    HomeAssistant(out=args.data, limit=args.limit).prepare()
    names = ", ".join(args.attention)
    tiny = chosen_recipe("tiny", args)
    updates = f"{tiny.training.updates:,} updates"
    say(f"2 of 2: train, translate and score {names}; {updates} each")
    table = open_table([tiny], args.attention, [args.seed], args)
    table.work()
    title = f"Home Assistant en-de, {table.data.manifest['lines']['train']:,} pairs, {updates}"
    if args.limit or args.updates:
        title += ", a trial and no result"
    show_table(table.tabulate(title))
    say(", ".join(str(out / name) for name in FILES))


def quickstart_lm_arguments(parser: ArgumentParser) -> None:
    add = parser.add_argument
    help_ = "folder for data, runs and table (default: %(default)s)"
    add("--out", type=Path, default=Path("runs/quickstart-lm"), help=help_)
    help_ = "updates of pre-training (default: %(default)s: minutes on two cores)"
    add("--updates", type=positive, default=500, metavar="N", help=help_)
    help_ = "epochs of fine-tuning (default: %(default)s)"
    add("--epochs", type=positive, default=3, metavar="N", help=help_)
    parser.set_defaults(arch="roberta_mhe_tiny", seeds=[1], tokens=64, batch=16)
    devices.add_arguments(parser)


def quickstart_lm(args: Namespace) -> None:
    """Prepare text and task, train and score the unfinished models, and print the table."""
    args.out = output_folder(args.out)
    text, task = prepare_language(args.out, args.tokens)
    say("task: from which of ten integrations is a message? (the commonest has 14%)")
    data = open_data(text, TEXT)
    table = LanguageTable(data, [open_task(task)], args)
    compared_kinds = ("mha", "mhe_mul")
    table.train(compared_kinds)
    table.write(compared_kinds)
