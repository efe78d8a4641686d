"""``fairseq-mhe quickstart`` and ``quickstart-lm``: from the embedded corpus to a table."""

from argparse import ArgumentParser, Namespace
from pathlib import Path

from fairseq_mhe.attention import KINDS
from fairseq_mhe.common.arguments import add_options, add_seed, at_least, positive
from fairseq_mhe.common.progress import say
from fairseq_mhe.experiments.nlu_table import LanguageGrid
from fairseq_mhe.experiments.table import Cells, grid_fields, kinds
from fairseq_mhe.prepare.corpora.home_assistant import HomeAssistant, prepare_language
from fairseq_mhe.prepare.data_folder import open_data
from fairseq_mhe.prepare.manifest import TEXT
from fairseq_mhe.prepare.task_folder import open_task
from fairseq_mhe.report.table import Table
from fairseq_mhe.report.translation_table import show_table
from fairseq_mhe.runs import devices
from fairseq_mhe.runs.devices import DeviceOptions
from fairseq_mhe.runs.finetuning import FinetuningRecipe
from fairseq_mhe.runs.pool import run_grid
from fairseq_mhe.runs.recipe_options import LanguageRecipe, TranslationRecipe


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
    add_options(parser, DeviceOptions)


def quickstart(args: Namespace) -> None:
    """Prepare the corpus, train and score the unfinished models, and print the table."""
    fields = grid_fields(args)
    # Called for its UserError: a missing device must be known before the corpus is prepared.
    devices.choose_device(fields["devices"], len(args.attention))
    pairs = f"{args.limit or 'all'} pairs"
    say(f"1 of 2: prepare {pairs} of the embedded English-German corpus")
    folder = fields["out"] / (f"data-limit{args.limit}" if args.limit else "data")
    HomeAssistant(out=folder, limit=args.limit).prepare()
    names = ", ".join(args.attention)
    tiny = TranslationRecipe(updates=args.updates).read("tiny")
    updates = f"{tiny.training.updates:,} updates"
    say(f"2 of 2: train, translate and score {names}; {updates} each")
    data = open_data(folder)
    title = f"Home Assistant en-de, {data.manifest['lines']['train']:,} pairs, {updates}"
    if args.limit or args.updates:
        title += ", a trial and no result"
    grid = _Quickstart(
        **fields,
        data=data,
        recipes=[tiny],
        kinds=args.attention,
        seeds=[args.seed],
        title=title,
    )
    run_grid(grid)


class _Quickstart(Cells):
    """The table of the quickstart, which fits a terminal."""

    def show(self, table: Table) -> None:
        show_table(table)


def quickstart_lm_arguments(parser: ArgumentParser) -> None:
    add = parser.add_argument
    help_ = "folder for data, runs and table (default: %(default)s)"
    add("--out", type=Path, default=Path("runs/quickstart-lm"), help=help_)
    help_ = "updates of pre-training (default: %(default)s: minutes on two cores)"
    add("--updates", type=positive, default=500, metavar="N", help=help_)
    help_ = "epochs of fine-tuning (default: %(default)s)"
    add("--epochs", type=positive, default=3, metavar="N", help=help_)
    add_options(parser, DeviceOptions)


def quickstart_lm(args: Namespace) -> None:
    """Prepare text and task, train and score the unfinished models, and print the table."""
    fields = grid_fields(args)
    recipe = LanguageRecipe(
        updates=args.updates, overrides=["task.tokens_per_sample=64"]
    ).read("roberta_mhe_tiny")
    text, task = prepare_language(
        fields["out"], recipe.training.options["tokens_per_sample"]
    )
    say("task: from which of ten integrations is a message? (the commonest has 14%)")
    grid = LanguageGrid(
        **fields,
        recipe=recipe,
        data=open_data(text, TEXT),
        tasks=[open_task(task)],
        kinds=["mha", "mhe_mul"],
        seeds=[1],
        finetuning=FinetuningRecipe(epochs=args.epochs),
    )
    run_grid(grid)
