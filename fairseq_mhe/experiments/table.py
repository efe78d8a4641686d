"""``run-table``, ``train``, ``evaluate``, ``score``: train, score, tabulate translation models."""

import itertools
import json
from argparse import ArgumentParser, Namespace
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path

from fairseq_mhe.attention import KINDS
from fairseq_mhe.common.arguments import add_seed, positive, seeds, some_of
from fairseq_mhe.common.errors import UserError
from fairseq_mhe.common.files import lock_folder, output_folder
from fairseq_mhe.common.progress import Board, say
from fairseq_mhe.models.architectures import PAPER_ROWS
from fairseq_mhe.models.options import PLACES
from fairseq_mhe.prepare.data_folder import DataFolder, open_data
from fairseq_mhe.prepare.languages import is_known
from fairseq_mhe.report.results import gather
from fairseq_mhe.report.significance import compare
from fairseq_mhe.report.table import Table
from fairseq_mhe.report.translation_table import PAPER_FILES, write_table
from fairseq_mhe.runs import devices, scoring, slurm, translation
from fairseq_mhe.runs.job import Job, plan_job, read_job, settings_of
from fairseq_mhe.runs.recipes import NAMES, Recipe, read_recipe, recipe
from fairseq_mhe.runs.train import train_and_score

#: Converter of an option: kinds of attention, separated by commas, or "all".
kinds = some_of(KINDS)
#: Options of run-table that each of its SLURM jobs gets with the same value.
_COPIED_OPTIONS = "data out recipe updates batch_tokens max_tokens subset bleu_tokenizer "
_COPIED_OPTIONS += "gpus processes cpu"


def run_table_arguments(parser: ArgumentParser) -> None:
    add = parser.add_argument
    help_ = f"model sizes: {', '.join(NAMES)} (default: the paper's)"
    add("--rows", metavar="ROW,...", help=help_)
    help_ = "kinds of attention, or all (default: %(default)s)"
    add("--kinds", type=kinds, default="mha,mhe_mul", metavar="KIND,...", help=help_)
    add("--seeds", type=seeds, default="1", metavar="N,...", help="seeds (default: 1)")
    help_ = "heading (default: languages and number of pairs)"
    add("--title", metavar="TEXT", help=help_)
    _add_recipe(parser)
    add_arguments(parser)
    slurm.add_table_arguments(parser)


def train_arguments(parser: ArgumentParser) -> None:
    add = parser.add_argument
    help_ = f"size of the model: {', '.join(NAMES)}; leave it out with --recipe"
    add("row", metavar="ROW", nargs="?", help=help_)
    help_ = f"kind of attention: {', '.join(KINDS)}"
    add("attention", metavar="ATTENTION", choices=list(KINDS), help=help_)
    add_seed(parser)
    help_ = "translate and score the model afterwards"
    add("--evaluate", action="store_true", help=help_)
    _add_recipe(parser)
    add_arguments(parser)


def add_arguments(parser: ArgumentParser) -> None:
    """Add the options that ``run-table``, ``train`` and the studies share."""
    add = parser.add_argument
    add("--data", type=Path, required=True, metavar="DATA", help="prepared data folder")
    help_ = "folder for the run folders"
    add("--out", type=Path, required=True, metavar="RUNS", help=help_)
    add("--updates", type=positive, metavar="N", help="updates (default: the recipe's)")
    help_ = "tokens of an update, on all devices together (default: the recipe's)"
    add("--batch-tokens", type=positive, metavar="N", help=help_)
    help_ = "most tokens of a mini-batch on one device (default: the recipe's)"
    add("--max-tokens", type=positive, metavar="N", help=help_)
    _add_scoring(parser)
    devices.add_arguments(parser)


def _add_recipe(parser: ArgumentParser) -> None:
    help_ = "YAML file of your own recipe, in place of a row (see fairseq-mhe recipe)"
    parser.add_argument("--recipe", type=Path, metavar="FILE", help=help_)


def chosen_recipe(row: str | None, args: Namespace) -> Recipe:
    """Return the recipe of a row or of --recipe; options such as --updates override the recipe."""
    if (row is None) == (args.recipe is None):
        raise UserError("give either a row or --recipe FILE")
    chosen = read_recipe(args.recipe) if args.recipe else recipe(str(row))
    training = chosen.training.shortened(args.updates or chosen.training.updates)
    if "tokens_per_sample" in training.options:
        raise UserError(f"{args.recipe} is for a language model: use fairseq-hydra-train")
    if args.batch_tokens or args.max_tokens:
        if "max_tokens" not in training.options:
            advice = "leave --batch-tokens and --max-tokens out"
            raise UserError(f"{args.recipe} has batches of {training.batch}: {advice}")
        training = training.batched(args.batch_tokens, args.max_tokens)
    # A recipe's own bf16 or fp16 stays, unless --precision names another.
    if args.precision != "auto" or training.precision == "float32":
        training = training.with_precision(devices.precision(args))
    return replace(chosen, training=training)


@dataclass(frozen=True)
class TableRun:
    """The jobs of a table or study in ``out``; ``args`` choose devices, data set and tokeniser."""

    jobs: Sequence[Job]
    data: DataFolder
    out: Path
    args: Namespace

    def scored(self, job: Job) -> bool:
        """Return whether a job has the scores that ``args`` ask for."""
        return translation.scored(job, self.args.subset, self.args.bleu_tokenizer)

    def waiting(self) -> list[Job]:
        """Return the jobs that have no such scores yet."""
        return [job for job in self.jobs if not self.scored(job)]

    def work(self, after: Callable[[], object] = lambda: None) -> None:
        """Train, translate and score the waiting jobs; ``after``: see `train_and_score`."""
        score = partial(evaluate_job, data=self.data, args=self.args)
        train_and_score(self.jobs, self.args, self.scored, score, after)

    def tabulate(self, title: str, paper: bool = False) -> Table:
        """Write the table of the finished jobs; raises UserError if none is finished."""
        waiting = [job.name for job in self.waiting()]
        finished = [job.folder for job in self.jobs if job.name not in waiting]
        if not finished:
            advice = "wait for its jobs, or leave --finished-only out"
            raise UserError(f"no model of {self.out} is finished yet: {advice}")
        cells = gather(finished, self.args.subset)
        return write_table(cells, self.out, title, paper, waiting)


def open_table(
    recipes: Iterable[Recipe], kinds_: list[str], seeds_: list[int], args: Namespace
) -> TableRun:
    """Plan a job for each recipe, kind and seed; UserError if a run folder has other settings."""
    data = open_data(args.data)
    out = output_folder(args.out)
    jobs = []
    for chosen, kind, seed in itertools.product(recipes, kinds_, seeds_):
        places = dict.fromkeys(PLACES, kind)
        settings = settings_of(chosen.row, places, seed, chosen.training, data.identity)
        input_paths = {"data": str(data.folder)}
        folder = out / f"{chosen.row}-{kind}-seed{seed}"
        jobs.append(plan_job(folder, settings, input_paths, chosen.decoding))
    return TableRun(jobs, data, out, args)


def train(args: Namespace) -> None:
    """Train or resume one model, score it with --evaluate, and print its run folder."""
    if not args.evaluate and (args.bleu_tokenizer or args.subset != "test"):
        options = "--subset and --bleu-tokenizer"
        raise UserError(f"{options} apply to scoring: add --evaluate, or leave them out")
    chosen = chosen_recipe(args.row, args)
    table = open_table([chosen], [args.attention], [args.seed], args)
    (job,) = table.jobs
    _say_batches([chosen], args)
    if args.evaluate:
        check_subset(table.data, args)
        table.work()
        _print_scores(job, args.subset)
    else:
        train_and_score(
            [job],
            args,
            scored=lambda job: job.model.exists(),
            score=lambda job, _: translation.make_model(job),
        )
    print(job.folder)


def run_table(args: Namespace) -> None:
    """Train and score the unfinished cells and print the table, or submit the cells to SLURM."""
    rows: Iterable[str | None] = [None] if args.recipe else PAPER_ROWS
    if args.rows is not None:
        rows = dict.fromkeys(args.rows.lower().split(","))
    recipes = [chosen_recipe(row, args) for row in rows]
    table = open_table(recipes, args.kinds, args.seeds, args)
    check_subset(table.data, args)
    waiting = table.waiting()
    if slurm.is_requested(args):
        _say_batches(recipes, args)
        jobs = {job.name: _job_words(job, args) for job in waiting}
        slurm.submit(jobs, len(table.jobs), args)
        for job in waiting:
            job.write_config()  # so that the job refuses if the recipe changes before its start
        return
    title = _title(args, table.data, recipes)
    if waiting and not args.finished_only:
        _say_batches(recipes, args)
        table.work(after=lambda: table.tabulate(title, paper=True))
    else:
        table.tabulate(title, paper=True)
    print((table.out / "table.md").read_text("utf-8"), end="")
    say(", ".join(str(table.out / name) for name in PAPER_FILES))


def _job_words(job: Job, args: Namespace) -> list[str]:
    """Return the words after ``fairseq-mhe`` that train and score one cell, without the table."""
    row = [] if args.recipe else [job.row]
    precision = job.training.precision  # not "auto", which depends on the machine
    job_options = {"seed": job.seed, "precision": precision, "evaluate": True}
    words = slurm.words_of(args, _COPIED_OPTIONS, **job_options)
    return ["train", *row, job.kind, *words]


def _say_batches(recipes: Iterable[Recipe], args: Namespace) -> None:
    """Print each row's updates, batch and precision; UserError if devices cannot share a batch."""
    workers = args.gpus or args.processes or 1
    for chosen in recipes:
        training = chosen.training
        size, (update_freq,) = training.shared_by(workers).values()
        batch = f"{training.batch_tokens:,} = {size:,} x {workers} x update-freq {update_freq}"
        updates = f"{training.updates:,} updates, batches of {batch}"
        say(f"  {chosen.row}: {updates}, {training.precision}")


def _title(args: Namespace, data: DataFolder, recipes: Sequence[Recipe]) -> str:
    """Return the heading; it says if options set updates or batches, in place of the recipe."""
    pairs = data.manifest["lines"]["train"]
    name = args.title or f"{'-'.join(data.languages)}, {pairs:,} pairs"
    updates = sorted({chosen.training.updates for chosen in recipes})
    title = f"{name}, {' to '.join(f'{n:,}' for n in updates)} updates"
    given = args.updates or args.batch_tokens
    return f"{title}: updates or batches given by options" if given else title


def evaluate_arguments(parser: ArgumentParser) -> None:
    add = parser.add_argument
    add("run", type=Path, metavar="RUN", help="the folder of a trained run")
    add("--data", type=Path, metavar="DATA", help="data folder of the run, if moved")
    _add_scoring(parser)
    add("--cpu", action="store_true", help="do not use a GPU")


def _add_scoring(parser: ArgumentParser) -> None:
    """Add the options that choose the data set to translate and the tokeniser of BLEU."""
    help_ = "data set to translate and score (default: %(default)s)"
    parser.add_argument("--subset", default="test", metavar="NAME", help=help_)
    scoring.add_tokeniser(parser)


def evaluate(args: Namespace) -> None:
    """Translate and score a run that has no scores yet, and print its scores."""
    job = read_job(args.run.resolve())
    data = job.open_data(args.data)
    check_subset(data, args)
    with lock_folder(job.folder), Board("sentences") as board:
        evaluate_job(job, board, data, args)
    _print_scores(job, args.subset)


def _print_scores(job: Job, subset: str) -> None:
    scores = scoring.read_scores(job.folder / subset)
    print("\n".join(scoring.described(scores)))


def evaluate_job(job: Job, board: Board, data: DataFolder, args: Namespace) -> None:
    """Translate and score a job that has no scores yet; raises UserError if it is not trained."""
    device = devices.single(args)  # alone, since generation.json records the speed
    translation.translate(job, data, args.subset, device, board)
    translation.score(job, args.subset, args.bleu_tokenizer)


def check_subset(data: DataFolder, args: Namespace) -> None:
    """Raise UserError if there is no data set --subset, or BLEU's tokeniser is not installed."""
    scoring.bleu_tokeniser(data.languages[1], args.bleu_tokenizer)
    subsets = sorted(data.manifest["lines"])
    if args.subset not in subsets:
        advice = f"give a --subset of {', '.join(subsets)}"
        raise UserError(f"{data.folder} has no {args.subset!r}: {advice}")


def score_arguments(parser: ArgumentParser) -> None:
    add = parser.add_argument
    help_ = "reference translations, detokenised, one a line"
    add("--reference", type=Path, required=True, metavar="F", help=help_)
    help_ = "translations of the system, detokenised, one a line"
    add("--hypothesis", type=Path, required=True, metavar="F", help=help_)
    help_ = "translations of another system: adds PRR and p-value"
    add("--baseline", type=Path, metavar="F", help=help_)
    help_ = "target language, like de: chooses BLEU's tokeniser, adds tokenised BLEU"
    add("--language", metavar="L", help=help_)
    scoring.add_tokeniser(parser)
    add("--json", action="store_true", help="print JSON, for programs")


def score(args: Namespace) -> None:
    """Print BLEU, chrF and, with --baseline, PRR and p-value."""
    paths = [args.reference, args.hypothesis]
    if args.baseline:
        paths.append(args.baseline)
    references, hypotheses, *baseline = scoring.read_aligned(paths)
    if args.language and not is_known(args.language):
        raise UserError(f"--language {args.language}: unknown; give a code like de or zh")
    tokenise = scoring.bleu_tokeniser(args.language, args.bleu_tokenizer)
    scores = scoring.score(hypotheses, references, args.language, tokenise)
    comparison = None
    if baseline:
        comparison = compare([hypotheses], baseline, references, tokenise)
    if args.json:
        scores["comparison"] = comparison and asdict(comparison)
        print(json.dumps(scores, indent=2))
        return
    print("\n".join(scoring.described(scores)))
    if comparison:
        print(comparison.describe())
