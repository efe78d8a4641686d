"""``fairseq-mhe pretrain``: a masked or causal language model, trained to its last update."""

from __future__ import annotations

import argparse
import json
import math
from dataclasses import replace
from pathlib import Path

from fairseq_mhe.common.arguments import positive, seed
from fairseq_mhe.common.errors import UserError
from fairseq_mhe.common.files import output_folder, write_json
from fairseq_mhe.common.progress import say
from fairseq_mhe.common.steps import only_one
from fairseq_mhe.common.tables import align
from fairseq_mhe.experiments import cells
from fairseq_mhe.models.families import ROBERTA, language_archs
from fairseq_mhe.prepare.data_folder import open_text
from fairseq_mhe.runs import devices
from fairseq_mhe.runs.language_recipes import PRETRAINING, Pretraining
from fairseq_mhe.runs.language_runs import LanguageRun
from fairseq_mhe.runs.perplexity import nats_of

_KNOWN = [
    arch
    for arch, family in language_archs().items()
    if arch.removeprefix(f"{family.name}_") in PRETRAINING
]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of ``fairseq-mhe pretrain``."""
    add = parser.add_argument
    add("arch", metavar="ARCH", choices=_KNOWN, help=", ".join(_KNOWN))
    add("attention", metavar="ATTENTION", help="kind of attention, as fairseq-train's --attention")
    add("--data", type=Path, required=True, help="a folder of data-prep/text.sh or its like")
    add("--out", type=Path, default=Path("runs/language"), metavar="RUNS", help="folder of runs")
    add("--seed", type=seed, default=1, metavar="N", help="random seed (default: %(default)s)")
    add("--updates", type=positive, metavar="N", help="another number than the recipe's")
    add("--tokens", type=positive, metavar="N", help="subwords of a block, not the recipe's")
    add("--batch", type=positive, metavar="N", help="blocks of an update, not the recipe's")
    devices.add_arguments(parser)


def run(args: argparse.Namespace) -> None:
    """Train, or go on training, and name the run folder and the loss on the validation text."""
    family = language_archs()[args.arch]
    kind = cells.kind(args.attention)
    recipe = _recipe(args)
    data = open_text(args.data)
    device = devices.asked_for(args, models=1)
    settings = {
        "arch": args.arch,
        "attention": kind,
        "data": data.fingerprint,
        "recipe": recipe.settings(),
        "seed": args.seed,
    }
    folder = output_folder(args.out / f"{args.arch}-{kind}-seed{args.seed}")
    made = LanguageRun(folder, settings, recipe.updates)
    masked = family is ROBERTA
    words = [str(data.binary), "--arch", args.arch, "--attention", kind, "--seed", str(args.seed)]
    words += ["--task", "masked_lm" if masked else "language_modeling"]
    words += ["--criterion", "masked_lm" if masked else "cross_entropy"]
    # A masked model's blocks begin and end with sentences; a causal one's are full.
    words += ["--sample-break-mode", "complete" if masked else "none"]
    words += [] if masked else ["--share-decoder-input-output-embed"]
    words += recipe.flags(device.workers)
    with only_one(folder):
        say(f"{folder.name}: {recipe.updates:,} updates {device.describe()}")
        made.train(words, device, interval=max(1, recipe.updates // 10))
        _tell(made)
    print(folder)


def _recipe(args: argparse.Namespace) -> Pretraining:
    recipe = PRETRAINING[args.arch.rsplit("mhe_", 1)[1]]
    updates = args.updates or recipe.updates
    batch = args.batch or recipe.batch
    if batch % min(batch, recipe.mini):
        raise UserError(
            f"--batch {batch} is no multiple of the mini-batch of {recipe.mini} blocks: change it"
        )
    return replace(
        recipe,
        updates=updates,
        warmup=max(1, recipe.warmup * updates // recipe.updates),
        tokens=args.tokens or recipe.tokens,
        batch=batch,
        mini=min(batch, recipe.mini),
    )


def _tell(run: LanguageRun) -> None:
    """Measure and print the loss on the validation text."""
    path = run.folder / "scores.json"
    if not path.exists():
        write_json(path, nats_of(run.checkpoint))
    found = json.loads(path.read_text(encoding="utf-8"))
    of = "masked subword" if "masked" in found["of"] else "subword"
    rows = [(f"nats per {of}", f"{found['nats']:.4f}"), ("subwords", f"{found['subwords']:,}")]
    rows.append((f"perplexity of a {of}", f"{math.exp(found['nats']):.2f}"))
    print(align(("valid", run.folder.name), rows, "markdown", left=(0,)))
