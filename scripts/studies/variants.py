"""The variants that each study compares: a row's model with other attention or training."""

import functools
from argparse import ArgumentParser, Namespace
from bisect import bisect_left
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from fairseq_mhe.attention import KINDS
from fairseq_mhe.common.arguments import number, positive, positive_list, some_of
from fairseq_mhe.common.errors import UserError
from fairseq_mhe.common.files import yaml_beside
from fairseq_mhe.convert.change_kind import TARGETS
from fairseq_mhe.models.architectures import sizes
from fairseq_mhe.models.counting import total_parameters
from fairseq_mhe.models.options import PLACES, build_sublayer
from fairseq_mhe.runs.job import kind_name
from fairseq_mhe.runs.recipes import Recipe

MHA, MHE = "mha", "mhe_mul"
#: The question of the reference variants, which every study trains to compare the others with.
REFERENCE = "reference"
#: Options that only some studies have: type, metavar and help.
_OPTIONS: dict[str, tuple[Callable[[str], Any], str, str]] = {
    "--budget": (positive, "N", "attention parameters of a model (default: the row's mhe_mul's)"),
    "--within": (number, "F", "largest deviation from the budget, as a share of it"),
    "--attention": (some_of(TARGETS), "KIND,...", f"kinds of attention, of {', '.join(TARGETS)}"),
    "--dims": (positive_list, "D,...", "widths D of the shared queries and keys"),
    "--iterations": (positive, "N", "iterations of the decomposition"),
    "--sentences": (positive, "N", "pairs to fit a conversion on, and as many to measure it on"),
    "--further": (number, "F", "updates of further training, as a share of the recipe's"),
}


def add_options(parser: ArgumentParser, defaults: Mapping[str, Any]) -> None:
    """Add the options that ``defaults`` lists, with these defaults."""
    for flag, default in defaults.items():
        convert, metavar, help_ = _OPTIONS[flag]
        help_ += "" if default is None else " (default: %(default)s)"
        parser.add_argument(flag, type=convert, default=default, metavar=metavar, help=help_)


@dataclass(frozen=True, eq=False)
class Variant:
    """One way to build and train the row's model; everything else follows the row's recipe."""

    name: str
    question: str  # a key of `Study.questions`: the report has a table for each
    attention: Mapping[str, str]  # place -> kind
    reference: str  # the variant to compare with; a reference names itself
    options: Mapping[str, Any] = field(default_factory=dict)  # of fairseq-train, beyond the recipe
    updates: float = 1.0  # as a share of the recipe's; 0: not trained
    start: Mapping[str, Any] | None = None  # None: random weights; else see `make_start`


@dataclass(frozen=True)
class Study:
    """A study of variants; all fields but ``variants`` come from variants.yaml."""

    name: str  # of the report's files
    title: str
    questions: Mapping[str, str]  # question -> its meaning, the heading of a table
    options: Mapping[str, Any]  # flag of `_OPTIONS` -> default
    variants: Callable[[Namespace, Recipe], Sequence[Variant]]


def everywhere(kind: str) -> dict[str, str]:
    """Return place -> kind for a model with one kind of attention."""
    return dict.fromkeys(PLACES, kind)


def head_options(kind: str, heads: int, width: int) -> dict[str, Any]:
    """Return the model's options for a number of heads and their width; gqa gets two groups."""
    sides = {"encoder_attention_heads": heads, "decoder_attention_heads": heads}
    groups = {"attention_kv_heads": 2} if kind == "gqa" else {}
    return {**sides, "attention_head_dim": width, **groups}


def heads_of(row: str) -> tuple[int, int]:
    """Return the number of heads of a row, and their width."""
    return sizes(row).heads, sizes(row).embed_dim // sizes(row).heads


def gap(args: Namespace, recipe: Recipe) -> list[Variant]:
    """Return MHE-Mul and MHA as in the paper, and variants that change one thing each."""
    mha, mhe, (rate,) = everywhere(MHA), everywhere(MHE), recipe.training.options["lr"]
    variants = []

    def add(name: str, question: str, attention: dict[str, str], **options: Any) -> None:
        variants.append(Variant(name, question, attention, MHE, options))

    add(MHE, REFERENCE, mhe)
    add(MHA, REFERENCE, mha)
    add("init-head", "init", mhe, shared_projection_init="head")
    add("init-xavier", "init", mhe, shared_projection_init="xavier")
    add("std-0.1", "embeddings", mhe, head_embedding_std=0.1)
    add("std-0.5", "embeddings", mhe, head_embedding_std=0.5)
    add("offset-0", "embeddings", mhe, head_embedding_offset=0, head_embedding_std=1)
    for prefix, attention in (("", mhe), ("mha-", mha)):
        add(f"{prefix}lr-half", "rate", attention, lr=[rate * 0.5])
        add(f"{prefix}lr-double", "rate", attention, lr=[rate * 2.0])
    for place in PLACES:
        add(f"only-{place}", "place", {**mha, place: MHE})
    row_heads, row_width = heads_of(recipe.row)
    budget = parameters(recipe.row, (MHE,) * 3, row_heads, row_width)
    other_heads = [("heads", MHE, heads) for heads in (1, 2, 8, 16) if heads != row_heads]
    for prefix, kind, heads in (*other_heads, ("mha", MHA, row_heads)):
        width = nearest_width(recipe.row, (kind,) * 3, heads, budget)
        options = head_options(kind, heads, width)
        add(f"{prefix}-{heads}x{width}", "heads", everywhere(kind), **options)
    return variants


def precision(args: Namespace, recipe: Recipe) -> list[Variant]:
    """Return MHA and MHE-Mul in float32, then in bf16; UserError if --precision is given."""
    if args.precision != "auto":
        raise UserError("--precision is what this study varies: leave it out")
    variants = []
    for name, question in (("float32", REFERENCE), ("bf16", "bf16")):
        options = {"bf16": name == "bf16" or None, "fp16": None}
        for kind in (MHA, MHE):
            attention, reference = everywhere(kind), f"{kind}-float32"
            variants.append(Variant(f"{kind}-{name}", question, attention, reference, options))
    return variants


def equal_budget(args: Namespace, recipe: Recipe) -> list[Variant]:
    """Return the references, and every kind at sizes near the budget; UserError if none is near."""
    row_size, mhe = heads_of(recipe.row), everywhere(MHE)
    budget = args.budget or parameters(recipe.row, (MHE,) * 3, *row_size)
    references = [Variant(kind, REFERENCE, everywhere(kind), MHE) for kind in (MHE, MHA)]
    variants = []
    for attention in (*map(everywhere, KINDS), *({**mhe, place: MHA} for place in PLACES)):
        kinds = tuple(attention.values())
        question = "kinds" if len(set(kinds)) == 1 else "place"
        for size in fitting(recipe.row, kinds, budget, args.within):
            name = f"{kind_name(attention)}-{size[0]}x{size[1]}"
            options = head_options(kinds[0], *size)
            if attention != mhe or size != row_size:
                variants.append(Variant(name, question, attention, MHE, options))
            if attention == mhe:
                options = {**options, "shared_projection_init": "head"}
                variants.append(Variant(f"{name}-head", "start", mhe, MHE, options))
    if not variants:
        what = f"--budget {budget}: no kind of the row {recipe.row} comes within {args.within:.1%}"
        raise UserError(f"{what} of it: give another budget, or a larger --within")
    return [*references, *variants]


def fitting(row: str, kinds: tuple[str, ...], budget: int, within: float) -> list[tuple[int, int]]:
    """Return up to 3 (heads, width) near the budget: the row's heads, half of them, its width."""
    row_heads, row_width = heads_of(row)
    sizes_found = []
    for wanted, fixed_width in ((row_heads, None), (row_heads // 2, None), (row_heads, row_width)):
        for heads in sorted(range(1, 2 * row_heads + 1), key=lambda n: abs(n - wanted)):
            width = fixed_width or nearest_width(row, kinds, heads, budget)
            if abs(parameters(row, kinds, heads, width) - budget) <= within * budget:
                sizes_found.append((heads, width))
                break
    return list(dict.fromkeys(sizes_found))


def nearest_width(row: str, kinds: tuple[str, ...], heads: int, budget: int) -> int:
    """Return the head width whose parameters are nearest to the budget."""
    cost = functools.partial(parameters, row, kinds, heads)
    if not cost(1):  # a kind such as el, which allows one width only
        return sizes(row).embed_dim // heads
    above = bisect_left(range(8 * sizes(row).embed_dim), budget, lo=1, key=cost)
    return min((max(1, above - 1), above), key=lambda width: abs(cost(width) - budget))


@functools.cache
def parameters(row: str, kinds: tuple[str, ...], heads: int, width: int) -> int:
    """Count the attention parameters of a row's model; 0 if a kind does not allow that size."""
    options = Namespace(**{**sizes(row).options(), **head_options(kinds[0], heads, width)})
    vars(options).update(zip(PLACES.values(), kinds, strict=True))
    try:
        with torch.device("meta"):
            per_layer = sum(total_parameters(build_sublayer(options, place)) for place in PLACES)
    except ValueError:
        return 0
    return sizes(row).layers * per_layer


def uptrain(args: Namespace, recipe: Recipe) -> list[Variant]:
    """Return MHA; each kind from scratch and from MHA; and MHA with as many further updates."""
    variants = [Variant(MHA, REFERENCE, everywhere(MHA), MHA)]
    for kind in (*args.attention, MHA):
        question, attention = "further" if kind == MHA else "uptrained", everywhere(kind)
        if kind != MHA:
            variants.append(Variant(kind, "scratch", attention, MHA))
        name, start = f"{question}-{kind}", {"to": kind, "sentences": args.sentences}
        variants.append(Variant(name, question, attention, MHA, {}, args.further, start))
    return variants


def collaborative_curve(args: Namespace, recipe: Recipe) -> list[Variant]:
    """Return MHA, and for each D collaborative attention (from MHA, from scratch), narrow MHA."""
    row, attention = sizes(recipe.row), everywhere("collaborative")
    variants = [Variant(MHA, REFERENCE, everywhere(MHA), MHA)]
    for dim in sorted(args.dims):
        options = {"collaborative_dim": dim}
        start = decomposition(dim, args.iterations, args.sentences)
        for question, updates in (("decomposed", 0.0), ("fine-tuned", args.further)):
            name = f"{question}-D{dim}"
            variants.append(Variant(name, question, attention, MHA, options, updates, start))
        variants.append(Variant(f"scratch-D{dim}", "scratch", attention, MHA, options))
        if dim % row.heads == 0 and dim != row.embed_dim:
            options = {"attention_head_dim": dim // row.heads}
            variants.append(Variant(f"narrow-D{dim}", "narrow", everywhere(MHA), MHA, options))
    return variants


def decomposition(dim: int, iterations: int, sentences: int = 0) -> dict[str, Any]:
    """Return the ``start`` of a variant that decomposes MHA to the shared width ``dim``."""
    fit = {"iterations": iterations, "sentences": sentences}
    return {"to": "collaborative", "collaborative_dim": dim, **fit}


_MAKERS = {
    "gap-study": gap,
    "equal-budget": equal_budget,
    "precision-study": precision,
    "uptrain": uptrain,
    "collaborative-curve": collaborative_curve,
}
_TEXTS = yaml_beside(__file__, "variants.yaml")
STUDIES = {name: Study(**_TEXTS[name], variants=make) for name, make in _MAKERS.items()}
