"""``fairseq-mhe evaluate``: score a trained run."""

import time
from argparse import ArgumentParser, Namespace
from pathlib import Path

from fairseq_mhe.common.arguments import add_options, from_options
from fairseq_mhe.common.errors import UserError
from fairseq_mhe.common.files import lock_folder, read_json, write_json, write_text
from fairseq_mhe.common.progress import Board
from fairseq_mhe.common.quiet import quiet_fairseq
from fairseq_mhe.deploy.translator import Translator
from fairseq_mhe.models.families import LANGUAGE_ARCHS, ROBERTA
from fairseq_mhe.prepare.data_folder import DataFolder, open_data
from fairseq_mhe.prepare.manifest import TEXT
from fairseq_mhe.prepare.task_folder import TaskFolder, open_task
from fairseq_mhe.prepare.text import read_lines
from fairseq_mhe.report.language_table import perplexity_of
from fairseq_mhe.runs import devices, finetuning, scoring, task_scores
from fairseq_mhe.runs.devices import Device, DeviceOptions
from fairseq_mhe.runs.job import Job, read_job
from fairseq_mhe.runs.language_model import validation_loss
from fairseq_mhe.runs.train import is_trained
from fairseq_mhe.runs.translation import ScoringOptions, is_scored, make_model


def add_arguments(parser: ArgumentParser) -> None:
    add = parser.add_argument
    add("run", type=Path, metavar="RUN", help="folder of a trained run")
    add("--data", type=Path, metavar="DATA", help="data folder, if the run's has moved")
    add_options(parser, ScoringOptions)
    add("--cpu", action="store_true", help="do not use a GPU")


def run(args: Namespace) -> None:
    """Score a run that has no scores yet, and print its scores."""
    job = read_job(args.run.resolve())
    device = DeviceOptions(cpu=args.cpu)
    if job.translates:
        options = from_options(ScoringOptions, args)
        evaluate_translation(job, args.data, options, device)
        print_scores(job, options.subset)
    else:
        evaluate_language_model(job, args.data, device)
        print("\n".join(described(read_json(job.scores))))


def evaluate_translation(
    job: Job, moved: Path | None, options: ScoringOptions, device: DeviceOptions
) -> None:
    """Translate and score a job that has no scores yet; raises UserError if it is not trained."""
    data = job.open_data(moved)
    options.check(data)
    folder = job.folder / options.subset
    with lock_folder(job.folder):
        if not (folder / "generation.json").exists():
            make_model(job)
            _translate(job, data, folder, devices.single(device))
        if not is_scored(job, options):
            scoring.score_folder(folder, data.processing, options.bleu_tokenizer)


def _translate(job: Job, data: DataFolder, folder: Path, device: Device) -> None:
    """Translate the data set that ``folder`` names; write its texts, at last generation.json.

    Of a corpus given in tokens, hypotheses and references are written in these tokens, too. The
    device is used alone, since generation.json records the speed of the search.
    """
    subset = folder.name
    folder.mkdir(exist_ok=True)  # if that fails, it does so before the search
    sources = list(read_lines(data.text(subset, 0)))
    segmented = [line.split() for line in read_lines(data.text(subset, 0, "subword"))]
    with Board("sentences") as board, quiet_fairseq():
        board.add(job.name, len(sources))
        done = 0

        def show(size: int) -> None:
            nonlocal done
            done += size
            board.update(job.name, done)

        translator = Translator.load(
            job.folder,
            data=data.folder,
            engine="fairseq",
            cpu=not device.gpu,
            threads=device.threads,
        )
        start = time.perf_counter()
        subwords = translator.search(segmented, show)
        seconds = time.perf_counter() - start
    texts = {
        "sources": sources,
        "references": list(read_lines(data.text(subset, 1))),
        "hypotheses": data.processing.plain(subwords),
    }
    if tokens := data.processing.given_tokens(subwords):
        texts["hypotheses.tokens"] = tokens
        references = read_lines(data.text(subset, 1, "subword"))
        texts["references.tokens"] = data.processing.given_tokens(references)
    for name, text in texts.items():
        write_text(folder / f"{name}.txt", "".join(f"{line}\n" for line in text))
    where = "on a GPU" if device.gpu else f"alone on the CPU, threads: {device.threads}"
    search = f"beam {job.decoding.beam}, at most {job.decoding.max_tokens} tokens a batch"
    generation = {
        "sentences": len(sources),
        "sentences_per_second": round(len(sources) / seconds, 2),
        "measured": f"{where}, {search}",
    }
    write_json(folder / "generation.json", generation)


def print_scores(job: Job, subset: str) -> None:
    """Print the scores of a translation job."""
    scores = scoring.read_scores(job.folder / subset)
    print("\n".join(scoring.described(scores)))


def evaluate_language_model(job: Job, moved: Path | None, device: DeviceOptions) -> None:
    """Write scores.json of a language model's job that has none: its loss, or a task's metrics.

    Raises UserError if the job is not trained, or its data have changed.
    """
    if not is_trained(job):
        advice = "give its training command again to finish it"
        raise UserError(f"{job.folder} is not trained to its end: {advice}")
    data = _data_of(job, moved or job.input_path("data"))
    if job.scores.exists():
        return
    gpu = devices.on_gpu(device)
    with lock_folder(job.folder):
        if isinstance(data, TaskFolder):
            scores = task_scores.score_task(job, data, gpu)
        else:
            scores = validation_loss(job.last, data.binary, gpu)
        if LANGUAGE_ARCHS[job.training.options["arch"]] is ROBERTA:
            scores["model"] = finetuning.describe(job.last)  # read by plan_finetuning
        write_json(job.scores, scores)


def _data_of(job: Job, folder: Path) -> DataFolder:
    """Open the text or task of a language model's job; UserError if ``folder`` holds another."""
    data = open_task(folder) if "task" in job.settings else open_data(folder, TEXT)
    job.check_data(data, folder)
    return data


def described(scores: dict) -> list[str]:
    """Return a line for each score of a language model's scores.json."""
    if "nats" in scores:
        perplexity = perplexity_of(scores["nats"])
        return [
            f"validation loss: {scores['nats']:.4f} nats a subword, perplexity {perplexity:.2f}",
            f"of {scores['subwords']:,} subwords ({scores['of']})",
        ]
    lines = []
    for dataset, examples in scores["examples"].items():
        lines.append(f"{scores['task']}, {examples:,} examples of {dataset}")
    for metric, value in scores["scores"].items():
        lines.append(f"{metric}: {value:.2f}%")
    return lines
