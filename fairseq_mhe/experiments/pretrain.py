"""``fairseq-mhe pretrain``: a masked or causal language model, trained to its last update."""

import argparse
from collections.abc import Callable, Sequence
from pathlib import Path

from fairseq_mhe.attention import KINDS
from fairseq_mhe.common.arguments import positive, seed
from fairseq_mhe.common.files import output_folder, read_json, write_json
from fairseq_mhe.common.progress import say
from fairseq_mhe.experiments.work import work
from fairseq_mhe.models.families import ROBERTA, language_archs
from fairseq_mhe.prepare.data_folder import DataFolder, open_data
from fairseq_mhe.prepare.manifest import TEXT
from fairseq_mhe.report.language_table import perplexity_of
from fairseq_mhe.runs import devices
from fairseq_mhe.runs.finetuning import describe
from fairseq_mhe.runs.job import Job, plan_job, settings_of
from fairseq_mhe.runs.predictions import nats_of
from fairseq_mhe.runs.recipes import FOLDER, Training, recipe

#: The architectures that have a recipe.
KNOWN = [arch for arch in language_archs() if (FOLDER / f"{arch}.yaml").is_file()]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of ``fairseq-mhe pretrain``."""
    add = parser.add_argument
    add("arch", metavar="ARCH", choices=KNOWN, help=", ".join(KNOWN))
    help_ = "kind of attention, as fairseq-train's --attention"
    add("attention", metavar="ATTENTION", choices=list(KINDS), help=help_)
    add("--seed", type=seed, default=1, metavar="N", help="random seed (default: %(default)s)")
    add_pretraining(parser)
    devices.add_arguments(parser)


def add_pretraining(parser: argparse.ArgumentParser) -> None:
    """The options of what a model is trained on, and how."""
    add = parser.add_argument
    add("--data", type=Path, required=True, help="a folder of data-prep/text.sh or its like")
    add(
        "--out", type=Path, default=Path("runs/language"), metavar="RUNS", help="folder of runs"
    )
    add("--updates", type=positive, metavar="N", help="another number than the recipe's")
    add("--tokens", type=positive, metavar="N", help="subwords of a block, not the recipe's")
    add("--batch", type=positive, metavar="N", help="blocks of an update, not the recipe's")


def run(args: argparse.Namespace) -> None:
    """Train, or resume, and name the run folder and the loss on the validation text."""
    (job,) = pretrain(
        args.arch, [(args.attention, args.seed)], open_data(args.data, TEXT), args
    )
    scores = read_json(job.scores)
    nats = scores["nats"]
    print(f"validation loss: {nats:.4f} nats a subword, perplexity {perplexity_of(nats):.2f}")
    print(f"of {scores['subwords']:,} subwords ({scores['of']})")
    print(job.folder)


def pretrain(
    arch: str, models: Sequence[tuple[str, int]], data: DataFolder, args: argparse.Namespace
) -> list[Job]:
    """Train models (kind of attention, seed) side by side, or resume; then score them.

    ``args``: the options of `add_pretraining` and `devices`.

    Raises:
        UserError: another process is at work in a folder, or training failed.
    """
    training, family = _training(arch, args), language_archs()[arch]
    jobs = []
    for kind, number in models:
        attention = dict.fromkeys(family.places, kind)
        settings = settings_of(
            arch, attention, number, training, {"fingerprint": data.fingerprint}
        )
        folder = output_folder(args.out / f"{arch}-{kind}-seed{number}")
        jobs.append(plan_job(folder, settings, {"data": str(data.folder)}))

    def score(job: Job, gpu: bool) -> None:
        facts = {"model": describe(job.last)} if family is ROBERTA else {}
        write_json(job.scores, {**nats_of(job.last, data.binary, gpu), **facts})

    train_and_score(jobs, lambda job: job.scores.exists(), score, args)
    return jobs


def _training(arch: str, args: argparse.Namespace) -> Training:
    """The recipe of an architecture, with what the options change in it."""
    training = recipe(arch, KNOWN).training
    if args.updates:
        training = training.shortened(args.updates)
    if args.tokens:
        training = training.changed(tokens_per_sample=args.tokens)
    if args.batch:
        training = training.batched(args.batch)
    return training.with_precision(devices.precision(args))


def train_and_score(
    jobs: Sequence[Job],
    scored: Callable[[Job], bool],
    score: Callable[[Job, bool], None],
    args: argparse.Namespace,
) -> None:
    """Train as many jobs side by side as the devices hold, and score each: ``score(job, gpu)``.

    Raises:
        UserError: another process is at work in a folder, or training failed.
    """
    waiting = [job for job in jobs if not scored(job)]
    device = devices.asked_for(args, models=len(waiting))
    for job in waiting:
        where = device.describe(job.training.precision)
        say(f"{job.name}: {job.training.updates:,} updates {where}")

    work(jobs, device, scored, lambda job, board: score(job, device.gpu))
