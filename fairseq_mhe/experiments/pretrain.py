"""``fairseq-mhe pretrain``: a masked or causal language model, trained to its last update."""

import argparse
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from fairseq_mhe.common.arguments import as_words, positive, seed
from fairseq_mhe.common.errors import UserError
from fairseq_mhe.common.files import output_folder, read_json, write_json
from fairseq_mhe.common.forms import Form, Number
from fairseq_mhe.common.tables import align
from fairseq_mhe.embeddings import DEFAULT_HASH, EMBEDDINGS, HASHES, TABLE, check_hash, hash_in
from fairseq_mhe.experiments import cells
from fairseq_mhe.models import shuffle_random
from fairseq_mhe.models.families import ANY, ROBERTA, build_language_on_meta, language_archs
from fairseq_mhe.models.loss import criterion_for
from fairseq_mhe.models.roberta import OBJECTIVES
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

_SCORED = Form(
    {"nats": Number, "subwords": int, "of": str},
    "delete it and give the same command again, which scores anew",
)


#: After the name of a kind of token embedding: --scale-embedding.
SCALED = "-scaled"
#: What a model's tokens can be asked to be, and how --help says it.
TOKENS = (*EMBEDDINGS, *(f"{name}{SCALED}" for name in EMBEDDINGS))
TOKENS_TOLD = f"{', '.join(EMBEDDINGS)}; with {SCALED} times the root of the width"


@dataclass(frozen=True)
class Tokens:
    """A token embedding of ``TOKENS``, and what a masked model learns to say; None is what fits."""

    embedding: str = TABLE
    hash: str | None = None
    objective: str | None = None

    @property
    def kind(self) -> str:
        """Scaled or not."""
        return self.embedding.removesuffix(SCALED)

    def options(self, arch: str, kind: str, data: TextFolder) -> dict[str, Any]:
        """fairseq-train's options of a model with a ``kind`` of attention, but for its defaults.

        Raises:
            UserError: the model cannot be of such an embedding, or the data are of another hash.
        """
        asked: dict[str, Any] = {
            "embedding": self.kind,
            "hash": self.hash,
            "objective": self.objective,
            "scale_embedding": self.embedding != self.kind or None,
        }
        masked = language_archs()[arch] is ROBERTA
        if self.kind != TABLE:
            asked["hash"] = self.hash or hash_in(data.binary) or DEFAULT_HASH
            check_hash(data.binary, asked["hash"])
        if self.objective and not masked:
            raise UserError(f"--objective is for masked models, not for {arch}: leave it out")
        if asked["scale_embedding"] and not masked:
            raise UserError(f"{arch} scales its embedding anyway: leave {SCALED} out")
        given = {name: value for name, value in asked.items() if value is not None}
        model: Any = build_language_on_meta(arch, kind, ANY, **given)  # or say what does not fit
        asked["objective"] = getattr(getattr(model, "args", None), "objective", None)
        usual = (None, TABLE, OBJECTIVES[0])
        return {name: value for name, value in asked.items() if value not in usual}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of ``fairseq-mhe pretrain``."""
    add = parser.add_argument
    add("arch", metavar="ARCH", choices=KNOWN, help=", ".join(KNOWN))
    add("attention", metavar="ATTENTION", help="kind of attention, as fairseq-train's --attention")
    add("--seed", type=seed, default=1, metavar="N", help="random seed (default: %(default)s)")
    told = f"kind of token embedding: {TOKENS_TOLD} (default: %(default)s)"
    add("--embedding", choices=TOKENS, default=TABLE, metavar="KIND", help=told)
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
    told = "of a hashed embedding (default: that of the data, or md5)"
    add("--hash", choices=tuple(HASHES), help=told)
    told = "what a masked model learns to say (default: masked_lm where its embedding can)"
    add("--objective", choices=OBJECTIVES, help=told)
    precision.add_argument(parser)


def run(args: argparse.Namespace) -> None:
    """Train, or go on training, and name the run folder and the loss on the validation text."""
    kind = cells.kind(args.attention)
    data = open_text(args.data)
    recipe = recipe_of(args)
    tokens = Tokens(args.embedding, args.hash, args.objective)
    (made,) = pretrain(args.arch, [(kind, tokens, args.seed)], data, args.out, recipe, args)
    _tell(made)
    print(made.folder)


#: Kind of attention, token embedding, seed.
Model = tuple[str, Tokens, int]


def pretrain(
    arch: str,
    models: Sequence[Model],
    data: TextFolder,
    out: Path,
    recipe: Pretraining,
    where: argparse.Namespace,
) -> list[LanguageRun]:
    """Train models in ``out``, side by side, or go on, or find them trained; and score them.

    What was kept without its model has its scores, and is left as it is.

    ``where``: the options of `devices`, and ``precision``.

    Raises:
        UserError: another process is at work in a folder, training failed, or as `Tokens.options`.
    """
    options = [tokens.options(arch, kind, data) for kind, tokens, _ in models]
    folders = [
        output_folder(_folder(arch, kind, chosen, number, out))
        for (kind, _, number), chosen in zip(models, options, strict=True)
    ]
    waiting = sum(not (folder / SCORES).exists() for folder in folders)
    device = devices.asked_for(where, models=max(1, waiting))
    trainings, runs = [], []
    for (kind, _, number), chosen, folder in zip(models, options, folders, strict=True):
        further, flags = precision.of_language_model(where.precision, device.gpu, folder)
        settings = {
            "arch": arch,
            "attention": kind,
            "data": data.fingerprint,
            "recipe": recipe.settings(),
            "seed": number,
            **chosen,
            **further,
        }
        run = LanguageRun(folder, settings, recipe.updates)
        runs.append(run)
        words = [str(data.binary), "--arch", arch, "--attention", kind, "--seed", str(number)]
        words += _words(arch, chosen, recipe, further.get("precision", precision.FLOAT32))
        words += [*recipe.flags(), *flags]
        interval = max(1, recipe.updates // 10)
        trainings.append(Training(run, words, interval, recipe.batch, recipe.mini))
    trainings = [training for training in trainings if not training.run.kept()]
    with trained(trainings, device):
        for training in trainings:
            path = training.run.folder / SCORES
            if not path.exists():
                write_json(path, nats_of(training.run.checkpoint, data.binary))
    return runs


def pretrained(arch: str, model: Model, data: TextFolder, out: Path) -> Path:
    """The run folder of a model."""
    kind, tokens, number = model
    return _folder(arch, kind, tokens.options(arch, kind, data), number, out)


def _folder(arch: str, kind: str, chosen: Mapping[str, Any], number: int, out: Path) -> Path:
    words = [SCALED[1:] if value is True else value for value in chosen.values()]
    return out / "-".join([arch, kind, *words, f"seed{number}"])


def _words(arch: str, chosen: Mapping[str, Any], recipe: Pretraining, numbers: str) -> list[str]:
    """fairseq's options of what is learnt, in a precision."""
    masked = language_archs()[arch] is ROBERTA
    objective = chosen.get("objective", OBJECTIVES[0])
    words = ["--task", objective if masked else "language_modeling"]
    criterion = objective if masked else "cross_entropy"
    if criterion != shuffle_random.NAME:  # which has three classes to tell, not many words
        criterion = criterion_for(numbers, criterion)
    words += ["--criterion", criterion]
    if criterion.startswith(OBJECTIVES[0]):
        words += ["--mask-prob", str(recipe.masked)]
    words += as_words({name: value for name, value in chosen.items() if name != "objective"})
    # A masked model's blocks begin and end with sentences; a causal one's are full.
    words += ["--sample-break-mode", "complete" if masked else "none"]
    return words if masked else [*words, "--share-decoder-input-output-embed"]


def nats_in(folder: Path) -> float | None:
    """The loss that a run folder's scores.json says, None where there is none."""
    if not (folder / SCORES).exists():
        return None
    return float(read_json(folder / SCORES, _SCORED)["nats"])


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
    found = read_json(run.folder / SCORES, _SCORED)
    of = found["of"].removeprefix("all ").replace("subwords", "subword").replace("classes", "class")
    rows = [(f"nats per {of}", f"{found['nats']:.4f}"), ("subwords", f"{found['subwords']:,}")]
    rows.append((f"perplexity of a {of}", f"{perplexity_of(found['nats']):.2f}"))
    print(align(("valid", run.folder.name), rows, "markdown", left=(0,)))
