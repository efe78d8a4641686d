"""``train``: one translation model; ``run-table``: a table of rows x kinds x seeds, or a study."""

from argparse import ArgumentParser, Namespace
from collections.abc import Sequence
from pathlib import Path

from fairseq_mhe.attention import KINDS
from fairseq_mhe.common.arguments import add_options, add_seed, from_options, seeds
from fairseq_mhe.common.errors import UserError
from fairseq_mhe.experiments.evaluate import print_scores
from fairseq_mhe.experiments.run_study import run_study
from fairseq_mhe.experiments.table import Cells, kinds, translation_fields
from fairseq_mhe.models.architectures import PAPER_ROWS
from fairseq_mhe.prepare.data_folder import DataFolder
from fairseq_mhe.runs.devices import DeviceOptions
from fairseq_mhe.runs.pool import run_grid
from fairseq_mhe.runs.recipe_options import TranslationRecipe
from fairseq_mhe.runs.recipes import NAMES, Recipe
from fairseq_mhe.runs.slurm import SlurmOptions
from fairseq_mhe.runs.translation import ScoringOptions, make_model


def add_arguments(parser: ArgumentParser) -> None:
    """Add the options that ``train`` and ``run-table`` share."""
    add = parser.add_argument
    help_ = "folder for the run folders"
    add("--out", type=Path, required=True, metavar="RUNS", help=help_)
    for options in (TranslationRecipe, ScoringOptions, DeviceOptions):
        add_options(parser, options)


def train_arguments(parser: ArgumentParser) -> None:
    add = parser.add_argument
    help_ = f"size of the model: {', '.join(NAMES)}; leave it out with --recipe"
    add("row", metavar="ROW", nargs="?", help=help_)
    help_ = f"kind of attention: {', '.join(KINDS)}"
    add("attention", metavar="ATTENTION", choices=list(KINDS), help=help_)
    add_seed(parser)
    help_ = "translate and score the model afterwards"
    add("--evaluate", action="store_true", help=help_)
    add("--data", type=Path, required=True, metavar="DATA", help="prepared data folder")
    add_arguments(parser)


def train(args: Namespace) -> None:
    """Train or resume one model, score it with --evaluate, and print its run folder."""
    if not args.evaluate and from_options(ScoringOptions, args) != ScoringOptions():
        options = "--subset and --bleu-tokenizer"
        raise UserError(f"{options} apply to scoring: add --evaluate, or leave them out")
    recipe = from_options(TranslationRecipe, args).read(args.row)
    fields = translation_fields(args, args.data)
    fields["slurm"] = SlurmOptions(no_table=True)
    grid = Cells(
        **fields,
        recipes=[recipe],
        kinds=[args.attention],
        seeds=[args.seed],
        trains_only=not args.evaluate,
    )
    if args.evaluate:
        grid.scoring.check(grid.data)
    (job,) = grid.plan()
    grid.say_batches([recipe])
    run_grid(grid)
    if args.evaluate:
        print_scores(job, grid.scoring.subset)
    else:
        make_model(job)
    print(job.folder)


def run_table_arguments(parser: ArgumentParser) -> None:
    add = parser.add_argument
    help_ = "prepared data folder (a study may prepare its own)"
    add("--data", type=Path, metavar="DATA", help=help_)
    help_ = f"model sizes: {', '.join(NAMES)} (default: the paper's)"
    add("--rows", metavar="ROW,...", help=help_)
    help_ = "kinds of attention, or all (default: mha,mhe_mul)"
    add("--kinds", type=kinds, metavar="KIND,...", help=help_)
    help_ = "seeds (default: 1, or the study's)"
    add("--seeds", type=seeds, metavar="N,...", help=help_)
    help_ = "YAML file of a study, in place of rows and kinds (docs/experiments.md)"
    add("--study", type=Path, metavar="FILE", help=help_)
    help_ = "variants of the study to train, beside the references (default: all)"
    add("--only", metavar="VARIANT,...", help=help_)
    add_arguments(parser)
    add_options(parser.add_argument_group("SLURM"), SlurmOptions)


def run_table(args: Namespace) -> None:
    """Train and score the unfinished cells and print the table, or submit the cells to SLURM."""
    if args.study:
        run_study(args)
        return
    if args.only or args.data is None:
        problem = "--only is for a study" if args.only else "--data is missing"
        raise UserError(
            f"{problem}: give --study FILE, or the data folder of rows and kinds"
        )
    fields = translation_fields(args, args.data)
    recipes = _chosen_recipes(args)
    grid = Cells(
        **fields,
        recipes=recipes,
        kinds=args.kinds or ["mha", "mhe_mul"],
        seeds=args.seeds or [1],
        title=_title(args, fields["data"], recipes),
    )
    grid.scoring.check(grid.data)
    grid.plan()  # for its UserError, before anything is said
    grid.say_batches(recipes)
    run_grid(grid)


def _chosen_recipes(args: Namespace) -> list[Recipe]:
    """Return the recipes of --rows, or of --recipe."""
    options: TranslationRecipe = from_options(TranslationRecipe, args)
    names: list[str | None] = [None] if args.recipe else [*PAPER_ROWS]
    if args.rows is not None:
        names = list(dict.fromkeys(args.rows.lower().split(",")))
    return [options.read(name) for name in names]


def _title(args: Namespace, data: DataFolder, recipes: Sequence[Recipe]) -> str:
    """Return the heading; it says if options set updates or batches, in place of the recipe."""
    pairs = data.manifest["lines"]["train"]
    updates = sorted({recipe.training.updates for recipe in recipes})
    title = f"{'-'.join(data.languages)}, {pairs:,} pairs, "
    title += f"{' to '.join(f'{n:,}' for n in updates)} updates"
    given = args.updates or args.batch_tokens or args.overrides
    return f"{title}: recipe changed by options" if given else title
