"""``pretrain``, ``finetune`` and ``nlu-table``: train, score and tabulate language models."""

import itertools
from argparse import ArgumentParser, Namespace
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from fairseq_mhe.attention import KINDS
from fairseq_mhe.common.arguments import add_seed, positive, seeds
from fairseq_mhe.common.errors import UserError
from fairseq_mhe.common.files import Json, output_folder, read_json, write_json
from fairseq_mhe.common.tables import listed
from fairseq_mhe.experiments.table import kinds
from fairseq_mhe.models.build import build_on_meta
from fairseq_mhe.models.counting import attention_parameters, cache_bytes
from fairseq_mhe.models.families import LANGUAGE_ARCHS, ROBERTA
from fairseq_mhe.prepare.data_folder import DataFolder, open_data
from fairseq_mhe.prepare.manifest import TEXT
from fairseq_mhe.prepare.task_folder import TaskFolder, open_task
from fairseq_mhe.report.language_table import (
    notes_on_tasks,
    perplexity_block,
    perplexity_of,
    task_blocks,
)
from fairseq_mhe.report.plots import plot_perplexity, plot_tasks
from fairseq_mhe.report.table import Table, seed_words
from fairseq_mhe.runs import devices, slurm, understanding
from fairseq_mhe.runs.job import Job, plan_job, settings_of
from fairseq_mhe.runs.recipes import FOLDER, recipe
from fairseq_mhe.runs.train import train_and_score

_ARCHS = [arch for arch in LANGUAGE_ARCHS if (FOLDER / f"{arch}.yaml").is_file()]
_ARCH_HELP = f"architecture of the model: {', '.join(_ARCHS)}"
#: The kinds in the paper's table, in its order.
_KINDS = "sha,mha,el,mqa,skv,mhe_add,mhe_mul"
_TASK_SCRIPTS = "data-prep/glue.sh, superglue.sh or squad.sh"
#: Options of nlu-table that each of its SLURM jobs gets with the same value.
_COPIED_OPTIONS = "data out seeds epochs updates tokens batch gpus processes cpu"


def pretrain_arguments(parser: ArgumentParser) -> None:
    add = parser.add_argument
    add("arch", metavar="ARCH", choices=_ARCHS, help=_ARCH_HELP)
    help_ = f"kind of attention: {', '.join(KINDS)}"
    add("attention", metavar="ATTENTION", choices=list(KINDS), help=help_)
    add_seed(parser)
    _add_pretraining(parser)


def _add_pretraining(parser: ArgumentParser) -> None:
    """Add the options of pre-training: data, output folder, sizes and devices."""
    help_ = "text folder, as data-prep/text.sh makes it"
    parser.add_argument("--data", type=Path, required=True, help=help_)
    _add_out(parser)
    _add_number(parser, "updates", "updates")
    _add_number(parser, "tokens", "subwords of a block")
    _add_number(parser, "batch", "blocks of an update")
    devices.add_arguments(parser)


def _add_number(parser: ArgumentParser, name: str, unit: str) -> None:
    help_ = f"{unit} (default: the recipe's)"
    parser.add_argument(f"--{name}", type=positive, metavar="N", help=help_)


def _add_out(parser: ArgumentParser) -> None:
    help_ = "folder for the run folders (default: %(default)s)"
    add = parser.add_argument
    add("--out", type=Path, default="runs/language", metavar="RUNS", help=help_)


def pretrain(args: Namespace) -> None:
    """Train or resume a language model, and print its validation loss and its run folder."""
    data = open_data(args.data, TEXT)
    job = _plan_pretraining(args.attention, args.seed, data, args)
    (scores,) = finish([job], args)
    nats = scores["nats"]
    perplexity = perplexity_of(nats)
    print(f"validation loss: {nats:.4f} nats a subword, perplexity {perplexity:.2f}")
    print(f"of {scores['subwords']:,} subwords ({scores['of']})")
    print(job.folder)


def _plan_pretraining(kind: str, seed: int, data: DataFolder, args: Namespace) -> Job:
    """Plan a run by the architecture's recipe; options such as --updates override the recipe."""
    training = recipe(args.arch, _ARCHS).training
    training = training.shortened(args.updates or training.updates)
    if args.tokens:
        training = training.changed(tokens_per_sample=args.tokens)
    training = training.batched(args.batch)
    training = training.with_precision(devices.precision(args))
    attention = dict.fromkeys(LANGUAGE_ARCHS[args.arch].model.PLACES, kind)
    identity = {"fingerprint": data.fingerprint}
    settings = settings_of(args.arch, attention, seed, training, identity)
    folder = output_folder(args.out) / f"{args.arch}-{kind}-seed{seed}"
    return plan_job(folder, settings, {"data": str(data.folder)})


def finish(jobs: Sequence[Job], args: Namespace) -> list[Json]:
    """Train and score the jobs that have no scores yet; return the scores.json of every job."""

    def score(job: Job, _: object) -> None:
        gpu = devices.on_gpu(args)
        data = job.input_path("data")
        if "task" in job.settings:
            scores = understanding.score_task(job, open_task(data), gpu)
        else:
            scores = understanding.validation_loss(job.last, data / "bin", gpu)
        if LANGUAGE_ARCHS[job.training.options["arch"]] is ROBERTA:
            scores["model"] = understanding.describe(job.last)  # read by plan_finetuning
        write_json(job.scores, scores)

    train_and_score(jobs, args, lambda job: job.scores.exists(), score)
    return [read_json(job.scores) for job in jobs]


def finetune_arguments(parser: ArgumentParser) -> None:
    add = parser.add_argument
    add("task", type=Path, metavar="TASK-DATA", help=f"task folder of {_TASK_SCRIPTS}")
    help_ = "masked language model: a run folder, or a checkpoint (stock fairseq's, too)"
    add("--model", type=Path, required=True, metavar="MODEL", help=help_)
    _add_out(parser)
    add_seed(parser)
    _add_number(parser, "epochs", "epochs")
    devices.add_arguments(parser)


def finetune(args: Namespace) -> None:
    """Fine-tune a model on a task or resume, and print its scores and its run folder."""
    data = open_task(args.task)
    job = understanding.plan_finetuning(args.model, data, args.seed, args)
    (scores,) = finish([job], args)
    for dataset, examples in scores["examples"].items():
        print(f"{data.task.name}, {examples:,} examples of {dataset}")
    for metric, value in scores["scores"].items():
        print(f"{metric}: {value:.2f}%")
    print(job.folder)


def nlu_table_arguments(parser: ArgumentParser) -> None:
    add = parser.add_argument
    add("arch", metavar="ARCH", choices=_ARCHS, help=_ARCH_HELP)
    help_ = f"task folders of {_TASK_SCRIPTS} (masked models only)"
    add("--tasks", type=Path, nargs="+", default=[], metavar="TASK-DATA", help=help_)
    help_ = "kinds of attention, or all (default: %(default)s)"
    add("--kinds", type=kinds, default=_KINDS, metavar="KIND,...", help=help_)
    help_ = "seeds of fine-tuning, or of a causal model's training (default: %(default)s)"
    add("--seeds", type=seeds, default="1,2,3", metavar="N,...", help=help_)
    _add_number(parser, "epochs", "epochs of fine-tuning")
    help_ = "train and score, but write no table, as a SLURM job does"
    add("--no-table", action="store_true", help=help_)
    _add_pretraining(parser)
    slurm.add_table_arguments(parser)


def nlu_table(args: Namespace) -> None:
    """Train and score the unfinished models and print the table, or submit them to SLURM."""
    masked = LANGUAGE_ARCHS[args.arch] is ROBERTA
    if masked and not args.tasks:
        raise UserError(f"{args.arch} is fine-tuned on tasks: name them with --tasks")
    if not masked and (args.tasks or args.epochs):
        raise UserError(f"{args.arch} is not fine-tuned: leave --tasks and --epochs out")
    data = open_data(args.data, TEXT)
    tasks = [open_task(folder) for folder in args.tasks]
    if len({task.task.name for task in tasks}) < len(tasks):
        raise UserError("--tasks has two folders of one task: leave one out")
    for task in tasks:
        if task.manifest["text"] != data.fingerprint:
            raise UserError(
                f"{task.folder} is not in the subwords of {data.folder}: prepare it with --text "
                f"{data.folder}"
            )
    table = LanguageTable(data, tasks, args)
    if slurm.is_requested(args):
        waiting = [kind for kind in args.kinds if not table.finished(kind)]
        jobs = {kind: _job_words(kind, args) for kind in waiting}
        slurm.submit(jobs, len(args.kinds), args)
        return
    if not args.finished_only:
        table.train(args.kinds)
    if not args.no_table:
        table.write(args.kinds)


def _job_words(kind: str, args: Namespace) -> list[str]:
    """Return the words after ``fairseq-mhe`` that train and score all models of a kind."""
    job_options = {"kinds": kind, "precision": devices.precision(args), "no_table": True}
    words = slurm.words_of(args, _COPIED_OPTIONS, **job_options)
    if args.tasks:
        words += ["--tasks", *(str(task.resolve()) for task in args.tasks)]
    return ["nlu-table", args.arch, *words]


@dataclass(frozen=True)
class LanguageTable:
    """The runs and the table of one architecture; a causal model has no ``tasks``."""

    data: DataFolder
    tasks: Sequence[TaskFolder]
    args: Namespace  # the options of nlu-table

    def _pretrainings(self, kind: str) -> list[Job]:
        """Return a kind's pre-training jobs: with tasks one, of seed 1, else one for each seed."""
        seeds = [1] if self.tasks else self.args.seeds
        return [_plan_pretraining(kind, seed, self.data, self.args) for seed in seeds]

    def _finetunings(self, kind: str) -> list[Job]:
        """Return a kind's fine-tuning jobs, one for each task and seed; it must be pre-trained."""
        folder = self._pretrainings(kind)[0].folder
        jobs = []
        for task, seed in itertools.product(self.tasks, self.args.seeds):
            jobs.append(understanding.plan_finetuning(folder, task, seed, self.args))
        return jobs

    def train(self, kinds: Sequence[str]) -> None:
        """Pre-train all kinds, then fine-tune them on all tasks; finished runs are skipped."""
        for jobs_of in (self._pretrainings, self._finetunings):
            jobs = [job for kind in kinds for job in jobs_of(kind)]
            finish(jobs, self.args)

    def finished(self, kind: str) -> bool:
        """Return whether all jobs of a kind have scores; raises UserError for other settings."""
        # Fine-tuning can be planned after pre-training only: `all` stops before that.
        stages = self._pretrainings, self._finetunings
        return all(job.scores.exists() for jobs_of in stages for job in jobs_of(kind))

    def write(self, kinds: Sequence[str]) -> None:
        """Write the table, JSON and picture of the finished kinds, and print the table."""
        finished = [kind for kind in kinds if self.finished(kind)]
        out = self.args.out.resolve()
        if not finished:
            advice = "wait for its jobs, or leave --finished-only out"
            raise UserError(f"no model of {out} is finished yet: {advice}")
        rows = [self._row(kind) for kind in finished]
        notes = self._notes(finished[0])
        if unfinished := [kind for kind in kinds if kind not in finished]:
            notes.append(f"Not finished, and left out: {'; '.join(unfinished)}.")
        path = out / ("nlu-table.md" if self.tasks else "perplexity.md")
        title = f"{self.args.arch}, text of {self.data.folder.name}; {self._seeds}"
        if self.tasks:
            commonest = {}
            for task in self.tasks:
                commonest[task.task.name] = understanding.commonest_score(task)
            blocks = task_blocks(rows, commonest)
            notes = [*notes_on_tasks(blocks, commonest), *notes]
            plot_tasks(rows, path.with_suffix(".png"), title)
        else:
            blocks = [perplexity_block(rows)]
            plot_perplexity(rows, path.with_suffix(".png"), title)
        values = {row["attention"]: row.get("scores", row["nats"]) for row in rows}
        table = Table(self.args.arch, blocks, notes)
        table.write(path, values)
        print(f"{table.markdown()}{path}")

    def _row(self, kind: str) -> Json:
        """Return the row of a kind for `task_blocks`, or without tasks for `perplexity_block`."""
        model = build_on_meta(self.args.arch, kind)
        row = {"attention": kind, "attention_parameters": attention_parameters(model)}
        nats = [read_json(job.scores)["nats"] for job in self._pretrainings(kind)]
        if not self.tasks:
            cache = cache_bytes(model).per_target_token
            return {**row, "nats": nats, "kv_bytes_per_token": cache}
        scores = defaultdict(list)
        for job in self._finetunings(kind):
            score = read_json(job.scores)["scores"]["score"]
            scores[job.settings["task"]].append(score)
        return {**row, "scores": scores, "nats": nats[0]}

    def _notes(self, kind: str) -> list[str]:
        """Return notes on the numbers and on the training of ``kind``, which all kinds share."""
        job = self._pretrainings(kind)[0]
        training = job.training
        subwords = training.options["tokens_per_sample"]
        blocks = f"{training.batch_tokens:,} blocks of {subwords:,} subwords"
        pretraining = f"{training.updates:,} updates of {blocks}, in {training.precision}"
        versions = listed(job.config["versions"])
        if not self.tasks:
            return [f"Training: {self._seeds}, {pretraining}.", f"{versions}."]
        return [
            f"Pre-training: {pretraining}; nats: validation loss per masked subword.",
            f"Fine-tuning: {self._seeds}, in {devices.precision(self.args)}.",
            f"{versions}.",
        ]

    @property
    def _seeds(self) -> str:
        several = " (±: standard deviation)" if len(self.args.seeds) > 1 else ""
        return f"{seed_words(self.args.seeds)}{several}"
