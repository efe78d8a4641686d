"""What the studies compare: variants of a row's model that differ in attention or training."""

import argparse
import functools
import shutil
from bisect import bisect_left
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fairseq_mhe.attention import KINDS
from fairseq_mhe.common.arguments import positive, positive_list, some_of
from fairseq_mhe.common.errors import UserError
from fairseq_mhe.convert.change_kind import TARGETS, convert
from fairseq_mhe.models.architectures import sizes
from fairseq_mhe.models.build import without_memory
from fairseq_mhe.models.counting import total_parameters
from fairseq_mhe.models.options import PLACES, build_place
from fairseq_mhe.runs.job import kind_name
from fairseq_mhe.runs.recipes import Recipe

MHA, MHE = "mha", "mhe_mul"
#: The question of variants that are always trained.
REFERENCE = "reference"


@dataclass(frozen=True)
class Start:
    """Weights that ``convert(output, material)`` makes of the trained mha of the same seed.

    ``settings``: all that decides the result, as JSON values; of them "sentences": pairs that the
    conversion is fitted to, and as many that it is judged on.
    """

    settings: Mapping[str, Any]
    convert: Callable[[Path, Any], Any]


@dataclass(frozen=True, eq=False)
class Variant:
    """One way to build and train the row's model; all else is as the row's recipe has it.

    ``question``: the heading of the report that it stands below; ``attention``: the kind at each
    place; ``reference``: the name of the variant that it is compared with, its own of a reference;
    ``options``: further options of fairseq-train, by name; ``updates``: the share of the recipe's
    updates, 0 of a model that is not trained at all.
    """

    name: str
    question: str
    attention: Mapping[str, str]
    reference: str
    options: Mapping[str, Any] = field(default_factory=dict)
    updates: float = 1.0
    start: Start | None = None


@dataclass(frozen=True)
class Study:
    """``questions``: headings of the report and what they mean, in order.

    ``variants``: of the command's options and the row's recipe; ``add_arguments``: adds the study's
    own options.
    """

    name: str
    title: str
    questions: Mapping[str, str]
    variants: Callable[[argparse.Namespace, Recipe], Sequence[Variant]]
    add_arguments: Callable[[argparse.ArgumentParser], None] = lambda _: None

    def ordered(self, args: argparse.Namespace, recipe: Recipe) -> list[Variant]:
        """The variants by question."""
        order = list(self.questions)
        return sorted(self.variants(args, recipe), key=lambda each: order.index(each.question))


def everywhere(kind: str) -> dict[str, str]:
    """One kind of attention at all places."""
    return dict.fromkeys(PLACES, kind)


def of_heads(heads: int, width: int) -> dict[str, Any]:
    """The options of a number of heads and their width."""
    sides = {"encoder_attention_heads": heads, "decoder_attention_heads": heads}
    return {**sides, "attention_head_dim": width}


#: Changes to MHE-Mul: name, question, options.
_CHANGES: tuple[tuple[str, str, dict[str, Any]], ...] = (
    ("init-head", "init", {"shared_projection_init": "head"}),
    ("init-xavier", "init", {"shared_projection_init": "xavier"}),
    ("std-0.1", "embeddings", {"head_embedding_std": 0.1}),
    ("std-0.5", "embeddings", {"head_embedding_std": 0.5}),
    ("offset-0", "embeddings", {"head_embedding_offset": 0, "head_embedding_std": 1}),
)


def gap(args: argparse.Namespace, recipe: Recipe) -> list[Variant]:
    """MHE-Mul and MHA as the paper has them, and variants that change one thing each."""
    mha, mhe, (rate,) = everywhere(MHA), everywhere(MHE), recipe.training.options["lr"]
    variants = [Variant(MHE, REFERENCE, mhe, MHE), Variant(MHA, REFERENCE, mha, MHE)]
    for name, question, options in _CHANGES:
        variants.append(Variant(name, question, mhe, MHE, options))
    for prefix, attention in (("", mhe), ("mha-", mha)):
        for name, factor in (("half", 0.5), ("double", 2.0)):
            options = {"lr": [rate * factor]}
            variants.append(Variant(f"{prefix}lr-{name}", "rate", attention, MHE, options))
    for place in PLACES:
        variants.append(Variant(f"only-{place}", "place", {**mha, place: MHE}, MHE))
    row = sizes(recipe.row)
    budget = parameters(recipe.row, (MHE,) * 3, row.heads, row.embed_dim // row.heads)
    numbers = [(MHE, heads) for heads in (1, 2, 8, 16) if heads != row.heads]
    for kind, heads in (*numbers, (MHA, row.heads)):
        width = nearest_width(recipe.row, (kind,) * 3, heads, budget)
        name = f"{'mha' if kind == MHA else 'heads'}-{heads}x{width}"
        options = of_heads(heads, width)
        variants.append(Variant(name, "heads", everywhere(kind), MHE, options))
    return variants


def precision(args: argparse.Namespace, recipe: Recipe) -> list[Variant]:
    """Both kinds in float32, then in bf16.

    Raises:
        UserError: the options name a precision.
    """
    if args.precision != "auto":
        raise UserError("--precision is what this study varies: leave it out")
    variants = []
    for name, question in (("float32", REFERENCE), ("bf16", "bf16")):
        options = {"bf16": name == "bf16" or None, "fp16": None}
        for kind in (MHA, MHE):
            attention, reference = everywhere(kind), f"{kind}-float32"
            variants.append(Variant(f"{kind}-{name}", question, attention, reference, options))
    return variants


def _budget_arguments(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    help_ = "attention parameters of a model (default: those of the row's mhe_mul)"
    add("--budget", type=positive, metavar="N", help=help_)
    help_ = "share of the budget that a size may be off (default: %(default)s)"
    add("--within", type=float, default=0.01, metavar="F", help=help_)


def equal_budget(args: argparse.Namespace, recipe: Recipe) -> list[Variant]:
    """Every kind at the sizes that come within a share of the budget, the references first.

    Raises:
        UserError: no kind comes close enough.
    """
    row, mhe = sizes(recipe.row), everywhere(MHE)
    usual = (row.heads, row.embed_dim // row.heads)
    budget = args.budget or parameters(recipe.row, (MHE,) * 3, *usual)
    references = [Variant(kind, REFERENCE, everywhere(kind), MHE) for kind in (MHE, MHA)]
    variants = []
    for attention in (*map(everywhere, KINDS), *({**mhe, place: MHA} for place in PLACES)):
        kinds = tuple(attention.values())
        question = "kinds" if len(set(kinds)) == 1 else "place"
        for heads, width in fitting(recipe.row, kinds, budget, args.within):
            name = f"{kind_name(attention)}-{heads}x{width}"
            options = {**of_heads(heads, width), **_fixed(kinds[0])}
            if attention != mhe or (heads, width) != usual:
                variants.append(Variant(name, question, attention, MHE, options))
            if attention == mhe:
                options = {**options, "shared_projection_init": "head"}
                variants.append(Variant(f"{name}-head", "start", mhe, MHE, options))
    if not variants:
        raise UserError(
            f"--budget {budget}: no kind of the row {recipe.row} comes within {args.within:.1%} of "
            "it: give another budget, or a larger --within"
        )
    return [*references, *variants]


def fitting(row: str, kinds: tuple[str, ...], budget: int, within: float) -> list[tuple[int, int]]:
    """The heads and widths of kinds that come ``within`` a share of the budget, at most three.

    With the row's number of heads and with half of it, or the nearest numbers of heads with which a
    whole width comes so close; and as many heads of the row's width.
    """
    usual, width = sizes(row).heads, sizes(row).embed_dim // sizes(row).heads
    fits: dict[tuple[int, int], None] = {}
    for wanted, fixed in ((usual, None), (max(1, usual // 2), None), (usual, width)):
        for heads in sorted(range(1, 2 * usual + 1), key=lambda n: (abs(n - wanted), n)):
            size = heads, fixed or nearest_width(row, kinds, heads, budget)
            if abs(parameters(row, kinds, *size) - budget) <= within * budget:
                fits[size] = None
                break
    return list(fits)


def nearest_width(row: str, kinds: tuple[str, ...], heads: int, budget: int) -> int:
    """The width of heads that is nearest to the budget; of a kind with one width, that."""

    def cost(width: int) -> int:
        return parameters(row, kinds, heads, width)

    if not cost(1):
        return sizes(row).embed_dim // heads
    widths = range(1, 8 * sizes(row).embed_dim)
    above = bisect_left(widths, budget, key=cost)
    return min(widths[max(0, above - 1) : above + 1], key=lambda width: abs(cost(width) - budget))


@functools.cache
def parameters(row: str, kinds: tuple[str, ...], heads: int, width: int) -> int:
    """The attention parameters of a model of the row; 0 where a kind cannot be of that size."""
    options = argparse.Namespace(**{**sizes(row).options(), **of_heads(heads, width)})
    for kind, option in zip(kinds, PLACES.values(), strict=True):
        vars(options).update({option: kind, **_fixed(kind)})
    try:
        with without_memory():
            each = sum(total_parameters(build_place(options, place)) for place in PLACES)
    except ValueError:
        return 0
    return sizes(row).layers * each


def _fixed(kind: str) -> dict[str, Any]:
    """The options without which a kind would be another at another size: two groups of heads."""
    flags = {option.flag for option in KINDS[kind].OPTIONS}
    return {"attention_kv_heads": 2} if "attention_kv_heads" in flags else {}


def _uptrain_arguments(parser: argparse.ArgumentParser) -> None:
    every, kinds = ",".join(TARGETS), some_of(TARGETS)
    help_ = "kinds of attention (default: %(default)s)"
    parser.add_argument("--attention", type=kinds, default=every, metavar="KIND,...", help=help_)
    _add_sentences(parser)
    _add_further(parser, 0.2)


def uptrain(args: argparse.Namespace, recipe: Recipe) -> list[Variant]:
    """MHA; each kind from scratch and from MHA; and MHA with as many further updates."""

    def converter(kind: str) -> Callable[[Path, Any], Any]:
        return lambda output, material: convert(output, kind, material)

    def copy(output: Path, material: Any) -> dict[str, Any]:
        shutil.copyfile(material.source.path, output)
        return {}

    variants = [Variant(MHA, REFERENCE, everywhere(MHA), MHA)]
    settings = {"sentences": args.sentences}
    how: tuple[dict[str, Any], float] = ({}, args.further)
    for kind in args.attention:
        start, attention = Start({"to": kind, **settings}, converter(kind)), everywhere(kind)
        variants.append(Variant(kind, "scratch", attention, MHA))
        variants.append(Variant(f"uptrained-{kind}", "uptrained", attention, MHA, *how, start))
    start = Start(settings, copy)
    return [*variants, Variant("further-mha", "further", everywhere(MHA), MHA, *how, start)]


def _curve_arguments(parser: argparse.ArgumentParser) -> None:
    add_decomposition(parser)
    _add_further(parser, 0.1)


def collaborative_curve(args: argparse.Namespace, recipe: Recipe) -> list[Variant]:
    """MHA, and for each D collaborative attention from MHA and from scratch, and narrow MHA."""
    row, attention = sizes(recipe.row), everywhere("collaborative")
    variants = [Variant(MHA, REFERENCE, everywhere(MHA), MHA)]
    for dim in sorted(set(args.dims)):
        options, start = {"collaborative_dim": dim}, decomposition(dim, args)
        for question, updates in (("decomposed", 0.0), ("fine-tuned", args.further)):
            how = (attention, MHA, options, updates, start)
            variants.append(Variant(f"{question}-D{dim}", question, *how))
        variants.append(Variant(f"scratch-D{dim}", "scratch", attention, MHA, options))
        if dim % row.heads == 0 and dim != row.embed_dim:
            options = {"attention_head_dim": dim // row.heads}
            name = f"narrow-D{dim}"
            variants.append(Variant(name, "narrow", everywhere(MHA), MHA, options))
    return variants


def add_decomposition(parser: argparse.ArgumentParser) -> None:
    """Options of studies that decompose models to collaborative attention."""
    add, widths = parser.add_argument, "16,32,64,128"
    help_ = "widths D of all shared queries and keys (default: %(default)s)"
    add("--dims", type=positive_list, default=widths, metavar="D,...", help=help_)
    help_ = "rounds of the decomposition (default: %(default)s)"
    add("--iterations", type=positive, default=200, metavar="N", help=help_)
    _add_sentences(parser)


def _add_sentences(parser: argparse.ArgumentParser) -> None:
    help_ = "pairs to fit and compare a conversion on (default: %(default)s)"
    parser.add_argument("--sentences", type=positive, default=1000, metavar="N", help=help_)


def decomposition(dim: int, args: argparse.Namespace) -> Start:
    """A model with collaborative attention of width ``dim``, of one with heads."""
    options = {"collaborative_dim": dim, "iterations": args.iterations}

    def decompose(output: Path, material: Any) -> dict[str, Any]:
        return convert(output, "collaborative", material, **options)

    return Start({**options, "sentences": args.sentences}, decompose)


def _add_further(parser: argparse.ArgumentParser, share: float) -> None:
    help_ = "share of the updates for further training (default: %(default)s)"
    parser.add_argument("--further", type=float, default=share, metavar="F", help=help_)


STUDIES = {
    "gap-study": Study(
        "gap",
        "Why the gap?",
        {
            REFERENCE: "MHE-Mul as the paper has it, and MHA",
            "init": "initial scale of the shared projections "
            "(the default is Xavier's, divided by the root of 2)",
            "embeddings": "offset and spread of the head embeddings (default: 1 and 0.02)",
            "rate": "learning rate, MHA's too",
            "place": "MHE in one place only",
            "heads": "number of heads at the same parameters, MHA's too",
        },
        gap,
    ),
    "equal-budget": Study(
        "equal-budget",
        "Equal budget",
        {
            REFERENCE: "the row's MHE-Mul, whose parameters are the budget by default, and its MHA",
            "start": "MHE-Mul with shared projections that start as small as mhe_conv's do",
            "kinds": "every kind, narrowed or widened",
            "place": "MHA at one place, narrow MHE-Mul at the others: as many parameters",
        },
        equal_budget,
        _budget_arguments,
    ),
    "precision-study": Study(
        "precision",
        "bf16 against float32",
        {REFERENCE: "trained in float32", "bf16": "trained in bf16"},
        precision,
    ),
    # "Uptraining": Ainslie et al. 2023, section 2.1.
    "uptrain": Study(
        "uptraining",
        "Smaller kinds of attention from a trained MHA",
        {
            REFERENCE: "MHA",
            "scratch": "trained from scratch",
            "uptrained": "converted from MHA by least squares, and trained further",
            "further": "MHA trained further by as many updates",
        },
        uptrain,
        _uptrain_arguments,
    ),
    # The figure of Cordonnier et al. 2020.
    "collaborative-curve": Study(
        "collaborative-curve",
        "Collaborative attention by D",
        {
            REFERENCE: "MHA",
            "decomposed": "MHA decomposed to the width D, not fine-tuned",
            "fine-tuned": "decomposed and fine-tuned",
            "scratch": "collaborative attention from scratch",
            "narrow": "MHA with heads D/n wide, values too",
        },
        collaborative_curve,
        _curve_arguments,
    ),
}
