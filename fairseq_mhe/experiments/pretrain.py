"""``fairseq-mhe pretrain``: a masked or causal language model, trained to its last update."""

import argparse
from collections.abc import Sequence
from pathlib import Path

from fairseq_mhe.attention import KINDS
from fairseq_mhe.common.arguments import positive, seed
from fairseq_mhe.common.files import output_folder, read_json, sha256, write_json
from fairseq_mhe.common.progress import Board, say
from fairseq_mhe.common.tables import align
from fairseq_mhe.experiments.work import work
from fairseq_mhe.models.families import language_archs
from fairseq_mhe.prepare.data_folder import TextFolder, open_text
from fairseq_mhe.report.language_table import perplexity_of
from fairseq_mhe.runs import devices
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
    add("--out", type=Path, default=Path("runs/language"), metavar="RUNS", help="folder of runs")
    add("--updates", type=positive, metavar="N", help="another number than the recipe's")
    add("--tokens", type=positive, metavar="N", help="subwords of a block, not the recipe's")
    add("--batch", type=positive, metavar="N", help="blocks of an update, not the recipe's")


def run(args: argparse.Namespace) -> None:
    """Train, or resume, and name the run folder and the loss on the validation text."""
    data = open_text(args.data)
    (made,) = pretrain(args.arch, [(args.attention, args.seed)], data, args.out, args)
    found = read_json(made.scores)
    of = found["of"].removeprefix("all ").replace("subwords", "subword")
    rows = [(f"nats per {of}", f"{found['nats']:.4f}"), ("subwords", f"{found['subwords']:,}")]
    rows.append((f"perplexity of a {of}", f"{perplexity_of(found['nats']):.2f}"))
    print(align(("valid", made.name), rows, "markdown", left=(0,)))
    print(made.folder)


def pretrain(
    arch: str,
    models: Sequence[tuple[str, int]],
    data: TextFolder,
    out: Path,
    args: argparse.Namespace,
) -> list[Job]:
    """Train models (kind of attention, seed) side by side, or resume; then score them.

    ``args``: the options of `add_pretraining` and `devices`.

    Raises:
        UserError: another process is at work in a folder, or training failed.
    """
    numbers = devices.precision(args)
    training, family = _training(arch, args).with_precision(numbers), language_archs()[arch]
    runs = []
    for kind, number in models:
        attention = dict.fromkeys(family.places, kind)
        settings = settings_of(arch, attention, number, training, data.fingerprint)
        folder = output_folder(pretrained(arch, kind, number, out))
        runs.append(plan_job(folder, settings, {"data": str(data.folder)}))
    waiting = [each for each in runs if not each.scores.exists()]
    device = devices.asked_for(args, models=max(1, len(waiting)))

    def score(job: Job, board: Board) -> None:
        found = nats_of(job.last, data.binary, gpu=device.gpu)
        write_json(job.scores, {**found, "model": sha256(job.last)})

    for each in waiting:
        say(f"{each.name}: {training.updates:,} updates {device.describe(numbers)}")
    work(runs, device, lambda each: each.scores.exists(), score)
    return runs


def pretrained(arch: str, kind: str, number: int, out: Path) -> Path:
    """The run folder of a kind of attention and a seed."""
    return out / f"{arch}-{kind}-seed{number}"


def nats_in(folder: Path) -> float | None:
    """The loss that a run folder's scores.json says, None where there is none."""
    path = folder / "scores.json"
    return float(read_json(path)["nats"]) if path.exists() else None


def _training(arch: str, args: argparse.Namespace) -> Training:
    """The recipe of an architecture, with what the options change in it."""
    found = recipe(arch, KNOWN).training
    if args.updates:
        found = found.shortened(args.updates)
    if args.tokens:
        found = found.changed(tokens_per_sample=args.tokens)
    return found.batched(args.batch) if args.batch else found
