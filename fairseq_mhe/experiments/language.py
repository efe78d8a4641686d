"""``pretrain`` and ``finetune``: train and score one language model."""

from argparse import ArgumentParser, Namespace
from pathlib import Path
from typing import Any

from fairseq_mhe.attention import KINDS
from fairseq_mhe.common.arguments import add_options, add_seed, from_options
from fairseq_mhe.common.errors import UserError
from fairseq_mhe.common.files import read_json
from fairseq_mhe.experiments.evaluate import described
from fairseq_mhe.experiments.table import grid_fields
from fairseq_mhe.models.families import LANGUAGE_ARCHS
from fairseq_mhe.prepare.data_folder import DataFolder, open_data
from fairseq_mhe.prepare.manifest import TEXT
from fairseq_mhe.prepare.task_folder import open_task
from fairseq_mhe.runs.devices import DeviceOptions
from fairseq_mhe.runs.finetuning import FinetuningRecipe, plan_finetuning
from fairseq_mhe.runs.grid import Jobs
from fairseq_mhe.runs.job import Job, plan_job, settings_of, with_precision
from fairseq_mhe.runs.pool import run_grid
from fairseq_mhe.runs.recipe_options import LanguageRecipe
from fairseq_mhe.runs.recipes import LANGUAGE_RECIPES, Recipe

ARCH_HELP = f"architecture of the model: {', '.join(LANGUAGE_RECIPES)}; leave it out with --recipe"
TASK_SCRIPTS = "data-prep/glue.sh, superglue.sh or squad.sh"


def add_arguments(parser: ArgumentParser) -> None:
    """Add the output folder and the options of devices."""
    help_ = "folder for the run folders (default: %(default)s)"
    add = parser.add_argument
    add("--out", type=Path, default="runs/language", metavar="RUNS", help=help_)
    add_options(parser, DeviceOptions)


def add_data(parser: ArgumentParser) -> None:
    help_ = "text folder, as data-prep/text.sh makes it"
    parser.add_argument("--data", type=Path, required=True, help=help_)


def pretraining(
    recipe: Recipe,
    kind: str,
    seed: int,
    data: DataFolder,
    out: Path,
    options: DeviceOptions,
) -> Job:
    """Plan the pre-training of a kind by a recipe; UserError for another model's recipe."""
    arch = recipe.training.options["arch"]
    if arch not in LANGUAGE_ARCHS:
        advice = "give it to fairseq-mhe train, or name a language model's"
        raise UserError(f"the recipe {recipe.row} trains {arch}: {advice}")
    folder = out / f"{recipe.row}-{kind}-seed{seed}"
    training = with_precision(recipe.training, folder, options)
    attention = dict.fromkeys(LANGUAGE_ARCHS[arch].model.PLACES, kind)
    identity = {"fingerprint": data.fingerprint}
    settings = settings_of(recipe.row, attention, seed, training, identity)
    return plan_job(folder, settings, {"data": str(data.folder)})


def pretrain_arguments(parser: ArgumentParser) -> None:
    add = parser.add_argument
    add("arch", metavar="ARCH", nargs="?", help=ARCH_HELP)
    help_ = f"kind of attention: {', '.join(KINDS)}"
    add("attention", metavar="ATTENTION", choices=list(KINDS), help=help_)
    add_seed(parser)
    add_data(parser)
    add_options(parser, LanguageRecipe)
    add_arguments(parser)


def pretrain(args: Namespace) -> None:
    """Train or resume a language model, and print its validation loss and its run folder."""
    data = open_data(args.data, TEXT)
    fields = grid_fields(args)
    out, devices = fields["out"], fields["devices"]
    recipe = from_options(LanguageRecipe, args).read(args.arch)
    job = pretraining(recipe, args.attention, args.seed, data, out, devices)
    _finish(job, **fields)


def finetune_arguments(parser: ArgumentParser) -> None:
    add = parser.add_argument
    add("task", type=Path, metavar="TASK-DATA", help=f"task folder of {TASK_SCRIPTS}")
    help_ = "masked language model: a run folder, or a checkpoint (stock fairseq's, too)"
    add("--model", type=Path, required=True, metavar="MODEL", help=help_)
    add_seed(parser)
    add_options(parser, FinetuningRecipe)
    add_arguments(parser)


def finetune(args: Namespace) -> None:
    """Fine-tune a model on a task or resume, and print its scores and its run folder."""
    task = open_task(args.task)
    fields = grid_fields(args)
    recipe: FinetuningRecipe = from_options(FinetuningRecipe, args)
    out, devices = fields["out"], fields["devices"]
    job = plan_finetuning(args.model, task, args.seed, out, recipe, devices)
    _finish(job, **fields)


def _finish(job: Job, **fields: Any) -> None:
    """Train and score one job, and print its scores and its folder."""
    run_grid(Jobs(**fields, jobs=[job]))
    print("\n".join(described(read_json(job.scores))))
    print(job.folder)
