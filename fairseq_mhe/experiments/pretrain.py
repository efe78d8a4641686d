"""``fairseq-mhe pretrain``: a masked or causal language model, trained to its last update."""

import argparse
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from fairseq_mhe.common.arguments import positive, seed
from fairseq_mhe.common.files import output_folder, read_json, write_json
from fairseq_mhe.common.tables import align
from fairseq_mhe.experiments import cells
from fairseq_mhe.models.families import ROBERTA, language_archs
from fairseq_mhe.models.loss import criterion_for
from fairseq_mhe.prepare.data_folder import TextFolder, open_text
from fairseq_mhe.report.language_table import perplexity_of
from fairseq_mhe.runs import devices, precision
from fairseq_mhe.runs.language_recipes import PRETRAINING, Pretraining
from fairseq_mhe.runs.language_runs import SCORES, LanguageRun, Training, trained
from fairseq_mhe.runs.perplexity import nats_of

#: The architectures that have a recipe.
KNOWN = [
    arch
    for arch, family in language_archs().items()
    if arch.removeprefix(f"{family.name}_") in PRETRAINING
]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of ``fairseq-mhe pretrain``."""
    add = parser.add_argument
    add("arch", metavar="ARCH", choices=KNOWN, help=", ".join(KNOWN))
    add("attention", metavar="ATTENTION", help="kind of attention, as fairseq-train's --attention")
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
    precision.add_argument(parser)


def run(args: argparse.Namespace) -> None:
    """Train, or go on training, and name the run folder and the loss on the validation text."""
    kind = cells.kind(args.attention)
    data = open_text(args.data)
    recipe = recipe_of(args)
    (made,) = pretrain(args.arch, [(kind, args.seed)], data, args.out, recipe, args)
    _tell(made)
    print(made.folder)


#: Kind of attention, seed.
Model = tuple[str, int]


def pretrain(
    arch: str,
    models: Sequence[Model],
    data: TextFolder,
    out: Path,
    recipe: Pretraining,
    where: argparse.Namespace,
) -> list[LanguageRun]:
    """Train models in ``out``, side by side, or go on, or find them trained; and score them.

    ``where``: the options of `devices`, and ``precision``.

    Raises:
        UserError: another process is at work in a folder, or training failed.
    """
    folders = [output_folder(pretrained(arch, kind, number, out)) for kind, number in models]
    waiting = sum(not (folder / SCORES).exists() for folder in folders)
    device = devices.asked_for(where, models=max(1, waiting))
    numbers = precision.chosen(where.precision, device.gpu)
    trainings, runs = [], []
    for (kind, number), folder in zip(models, folders, strict=True):
        settings = {
            "arch": arch,
            "attention": kind,
            "data": data.fingerprint,
            "recipe": recipe.settings(),
            "seed": number,
            "precision": numbers,
        }
        run = LanguageRun(folder, settings, recipe.updates)
        runs.append(run)
        words = [str(data.binary), "--arch", arch, "--attention", kind, "--seed", str(number)]
        words += _words(arch, recipe, numbers)
        words += [*recipe.flags(), *precision.flags(numbers)]
        interval = max(1, recipe.updates // 10)
        trainings.append(Training(run, words, interval, recipe.batch, recipe.mini))
    with trained(trainings, device):
        for training in trainings:
            path = training.run.folder / SCORES
            if not path.exists():
                write_json(path, nats_of(training.run.checkpoint, data.binary))
    return runs


def pretrained(arch: str, kind: str, number: int, out: Path) -> Path:
    """The run folder of a kind of attention and a seed."""
    return out / f"{arch}-{kind}-seed{number}"


def _words(arch: str, recipe: Pretraining, numbers: str) -> list[str]:
    """fairseq's options of what is learnt, in a precision."""
    masked = language_archs()[arch] is ROBERTA
    words = ["--task", "masked_lm" if masked else "language_modeling"]
    words += ["--criterion", criterion_for(numbers, "masked_lm" if masked else "cross_entropy")]
    words += ["--mask-prob", str(recipe.masked)] if masked else []
    # A masked model's blocks begin and end with sentences; a causal one's are full.
    words += ["--sample-break-mode", "complete" if masked else "none"]
    return words if masked else [*words, "--share-decoder-input-output-embed"]


def nats_in(folder: Path) -> float | None:
    """The loss that a run folder's scores.json says, None where there is none."""
    if not (folder / SCORES).exists():
        return None
    return float(read_json(folder / SCORES)["nats"])


def recipe_of(args: argparse.Namespace) -> Pretraining:
    """The recipe of ``args.arch``, with what the options change in it."""
    recipe = PRETRAINING[args.arch.rsplit("mhe_", 1)[1]]
    updates = args.updates or recipe.updates
    batch = args.batch or recipe.batch
    return replace(
        recipe,
        updates=updates,
        warmup=max(1, recipe.warmup * updates // recipe.updates),
        tokens=args.tokens or recipe.tokens,
        batch=batch,
        mini=min(batch, recipe.mini),
    )


def _tell(run: LanguageRun) -> None:
    """Print the loss on the validation text."""
    found = read_json(run.folder / SCORES)
    of = found["of"].removeprefix("all ").replace("subwords", "subword")
    rows = [(f"nats per {of}", f"{found['nats']:.4f}"), ("subwords", f"{found['subwords']:,}")]
    rows.append((f"perplexity of a {of}", f"{perplexity_of(found['nats']):.2f}"))
    print(align(("valid", run.folder.name), rows, "markdown", left=(0,)))
