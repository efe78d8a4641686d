"""``fairseq-mhe evaluate`` and ``score``: scores of a trained run, and of any translations."""

import argparse
import json
from dataclasses import asdict
from pathlib import Path

from fairseq_mhe.common.errors import UserError
from fairseq_mhe.common.files import only_one, read_json
from fairseq_mhe.common.progress import Board
from fairseq_mhe.common.system import require
from fairseq_mhe.prepare.data_folder import DataFolder, open_data
from fairseq_mhe.report.significance import compare
from fairseq_mhe.runs import comet, devices, scoring, translation
from fairseq_mhe.runs.devices import Device
from fairseq_mhe.runs.job import Job, read_job


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of ``fairseq-mhe evaluate``."""
    add = parser.add_argument
    add("run", type=Path, metavar="RUN", help="the folder of a trained run")
    add("--data", type=Path, metavar="DATA", help="data folder of the run, if moved")
    add_scoring(parser)
    help_ = f"score with COMET too ({comet.MODEL})"
    add("--comet", nargs="?", const=comet.MODEL, metavar="MODEL", help=help_)
    add("--cpu", action="store_true", help="do not use a GPU")


def add_scoring(parser: argparse.ArgumentParser) -> None:
    """The options of what is translated and how it is scored."""
    help_ = "data set that is translated and scored (default: %(default)s)"
    parser.add_argument("--subset", default="test", metavar="NAME", help=help_)
    scoring.add_tokeniser(parser)


def run(args: argparse.Namespace) -> None:
    """Translate and score, unless that is done, and print the scores."""
    job = read_job(args.run.resolve())
    data = open_data(args.data or job.place("data"))
    if args.comet:
        require("comet", "unbabel-comet")
    device = devices.single(args.cpu)
    with only_one(job.folder):
        evaluate(job, data, args.subset, device, args.bleu_tokenizer)
        if args.comet:
            comet.add_score(job, args.subset, args.comet, device.gpu)
    show(job, args.subset)


def show(job: Job, subset: str) -> None:
    """Print the scores that a job has."""
    print("\n".join(scoring.described(read_json(job.subset(subset) / "scores.json"))))
    path = job.subset(subset) / comet.FILE
    if path.exists():
        by_comet = read_json(path)
        print(f"COMET {by_comet['score']:.4f}  ({by_comet['model']})")


def evaluate(
    job: Job, data: DataFolder, subset: str, device: Device, tokenise: str | None = None
) -> None:
    """Translate and score, unless that is done.

    Raises:
        UserError: the job is not trained to its end, or was trained on other data.
    """
    if data.fingerprint != job.settings["data"]["fingerprint"]:
        raise UserError(
            f"{data.folder} is not the data that {job.folder} was trained on: give the right --data"
        )
    check_subset(data, subset, tokenise)
    with Board("sentences") as board:
        translation.translate(job, data, subset, device, board)
    translation.score(job, subset, tokenise)


def check_subset(data: DataFolder, subset: str, tokenise: str | None = None) -> None:
    """See that a data folder has what is to be translated, and that it can be scored.

    Raises:
        UserError: it has no such subset; the line names those that it has. Or BLEU's tokeniser is
            not installed.
    """
    scoring.bleu_tokeniser(data.languages[1], tokenise)
    names = sorted(path.stem for path in (data.folder / "raw").glob(f"*.{data.languages[0]}"))
    if subset not in names:
        raise UserError(
            f"{data.folder} has no {subset!r}: give a --subset of {', '.join(names)}"
        )


def score_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of ``fairseq-mhe score``."""
    add = parser.add_argument
    help_ = "reference translations, detokenised, one a line"
    add("--reference", type=Path, required=True, metavar="F", help=help_)
    help_ = "translations of the system, detokenised, one a line"
    add("--hypothesis", type=Path, required=True, metavar="F", help=help_)
    help_ = "translations of another system: adds PRR and p-value"
    add("--baseline", type=Path, metavar="F", help=help_)
    help_ = "target language (de, say): chooses BLEU's tokeniser, adds tokenised BLEU"
    add("--language", metavar="L", help=help_)
    scoring.add_tokeniser(parser)
    add("--json", action="store_true", help="print JSON, for programs")


def score(args: argparse.Namespace) -> None:
    """Print BLEU, chrF and, with a baseline, the comparison."""
    paths = [args.reference, args.hypothesis, *([args.baseline] if args.baseline else [])]
    advice = "score the same sentences in the same order, one a line"
    references, hypotheses, *baseline = scoring.read_aligned(paths, advice)
    tokenise = scoring.bleu_tokeniser(args.language, args.bleu_tokenizer)
    scores = scoring.score(hypotheses, references, args.language, tokenise)
    comparison = None
    if baseline:
        comparison = compare([hypotheses], baseline, references, tokenise)
    if args.json:
        print(json.dumps({**scores, "comparison": comparison and asdict(comparison)}, indent=2))
        return
    print("\n".join(scoring.described(scores)))
    if comparison:
        print(comparison.describe())
