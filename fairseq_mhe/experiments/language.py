"""``pretrain`` and ``finetune``: train and score one language model."""

from argparse import ArgumentParser, Namespace
from pathlib import Path
from typing import Any

from fairseq_mhe.attention import KINDS
from fairseq_mhe.common.arguments import add_options, add_seed, from_options
from fairseq_mhe.common.files import read_json
from fairseq_mhe.experiments.evaluate import described
from fairseq_mhe.experiments.nlu_table import (
    ARCH_HELP,
    TASK_SCRIPTS,
    add_arguments,
    add_data,
    pretraining,
    read_recipe,
)
from fairseq_mhe.experiments.table import grid_fields
from fairseq_mhe.prepare.data_folder import open_data
from fairseq_mhe.prepare.manifest import TEXT
from fairseq_mhe.prepare.task_folder import open_task
from fairseq_mhe.runs.finetuning import FinetuningRecipe, plan_finetuning
from fairseq_mhe.runs.grid import Jobs
from fairseq_mhe.runs.job import Job
from fairseq_mhe.runs.pool import run_grid
from fairseq_mhe.runs.recipe_options import AnyRecipe


def pretrain_arguments(parser: ArgumentParser) -> None:
    add = parser.add_argument
    add("arch", metavar="ARCH", nargs="?", help=ARCH_HELP)
    help_ = f"kind of attention: {', '.join(KINDS)}"
    add("attention", metavar="ATTENTION", choices=list(KINDS), help=help_)
    add_seed(parser)
    add_data(parser)
    add_options(parser, AnyRecipe)
    add_arguments(parser)


def pretrain(args: Namespace) -> None:
    """Train or resume a language model, and print its validation loss and its run folder."""
    data = open_data(args.data, TEXT)
    fields = grid_fields(args)
    out, devices = fields["out"], fields["devices"]
    job = pretraining(read_recipe(args), args.attention, args.seed, data, out, devices)
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
