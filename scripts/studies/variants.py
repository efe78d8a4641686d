"""What the studies compare: variants of a row's model that differ in attention or training."""

import functools
from argparse import ArgumentParser, Namespace
from bisect import bisect_left
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from fairseq_mhe.attention import KINDS
from fairseq_mhe.common.arguments import number, positive, positive_list, some_of
from fairseq_mhe.common.errors import UserError
from fairseq_mhe.common.files import yaml_beside
from fairseq_mhe.convert.change_kind import TARGETS
from fairseq_mhe.models.architectures import sizes
from fairseq_mhe.models.counting import total_parameters
from fairseq_mhe.models.meta import without_memory
from fairseq_mhe.models.options import PLACES, build_place
from fairseq_mhe.runs.job import kind_name
from fairseq_mhe.runs.recipes import Recipe

MHA, MHE = "mha", "mhe_mul"
#: The question of variants that are always trained.
REFERENCE = "reference"
#: Options of single studies: type, metavar and help.
_OPTIONS: dict[str, tuple[Callable[[str], Any], str, str]] = {
    "--budget": (positive, "N", "attention parameters of a model (default: the row's mhe_mul's)"),
    "--within": (number, "F", "share of the budget that a size may be off"),
    "--attention": (some_of(TARGETS), "KIND,...", f"kinds of attention, of {', '.join(TARGETS)}"),
    "--dims": (positive_list, "D,...", "widths D of all shared queries and keys"),
    "--iterations": (positive, "N", "rounds of the decomposition"),
    "--sentences": (positive, "N", "pairs to fit and compare a conversion on"),
    "--further": (number, "F", "share of the updates for further training"),
}


def add_options(parser: ArgumentParser, defaults: Mapping[str, Any]) -> None:
    """Add options of ``_OPTIONS``."""
    for flag, default in defaults.items():
        convert, metavar, help_ = _OPTIONS[flag]
        help_ += "" if default is None else " (default: %(default)s)"
        parser.add_argument(flag, type=convert, default=default, metavar=metavar, help=help_)


@dataclass(frozen=True, eq=False)
class Variant:
    """One way to build and train the row's model; all else is as the row's recipe has it."""

    name: str
    question: str  # the heading of the report that it stands below
    attention: Mapping[str, str]  # place -> kind
    reference: str  # the variant that it is compared with; a reference names itself
    options: Mapping[str, Any] = field(default_factory=dict)  # further ones of fairseq-train
    updates: float = 1.0  # the share of the recipe's; 0: not trained at all
    start: Mapping[str, Any] | None = None  # how its weights are made of mha's: `make_start`


@dataclass(frozen=True)
class Study:
    """Its texts and its own options' defaults (variants.yaml), and what makes its variants."""

    name: str
    title: str
    questions: Mapping[str, str]
    options: Mapping[str, Any]
    variants: Callable[[Namespace, Recipe], Sequence[Variant]]


def everywhere(kind: str) -> dict[str, str]:
    """One kind of attention at all places."""
    return dict.fromkeys(PLACES, kind)


def of_heads(kind: str, heads: int, width: int) -> dict[str, Any]:
    """The options of a number of heads and their width; gqa stays itself with two groups only."""
    sides = {"encoder_attention_heads": heads, "decoder_attention_heads": heads}
    groups = {"attention_kv_heads": 2} if kind == "gqa" else {}
    return {**sides, "attention_head_dim": width, **groups}


def heads_of(row: str) -> tuple[int, int]:
    """The heads of a row, and their width."""
    return sizes(row).heads, sizes(row).embed_dim // sizes(row).heads


def gap(args: Namespace, recipe: Recipe) -> list[Variant]:
    """MHE-Mul and MHA as the paper has them, and variants that change one thing each."""
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
    add("lr-half", "rate", mhe, lr=[rate * 0.5])
    add("lr-double", "rate", mhe, lr=[rate * 2.0])
    add("mha-lr-half", "rate", mha, lr=[rate * 0.5])
    add("mha-lr-double", "rate", mha, lr=[rate * 2.0])
    for place in PLACES:
        add(f"only-{place}", "place", {**mha, place: MHE})
    usual, width = heads_of(recipe.row)
    budget = parameters(recipe.row, (MHE,) * 3, usual, width)
    numbers = [("heads", MHE, heads) for heads in (1, 2, 8, 16) if heads != usual]
    for word, kind, heads in (*numbers, ("mha", MHA, usual)):
        width = nearest_width(recipe.row, (kind,) * 3, heads, budget)
        options = of_heads(kind, heads, width)
        add(f"{word}-{heads}x{width}", "heads", everywhere(kind), **options)
    return variants


def precision(args: Namespace, recipe: Recipe) -> list[Variant]:
    """Both kinds in float32, then in bf16; or UserError where the options name a precision."""
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
    """The references, then every kind at the sizes near the budget; or UserError where none is."""
    usual, mhe = heads_of(recipe.row), everywhere(MHE)
    budget = args.budget or parameters(recipe.row, (MHE,) * 3, *usual)
    references = [Variant(kind, REFERENCE, everywhere(kind), MHE) for kind in (MHE, MHA)]
    variants = []
    for attention in (*map(everywhere, KINDS), *({**mhe, place: MHA} for place in PLACES)):
        kinds = tuple(attention.values())
        question = "kinds" if len(set(kinds)) == 1 else "place"
        for size in fitting(recipe.row, kinds, budget, args.within):
            name = f"{kind_name(attention)}-{size[0]}x{size[1]}"
            options = of_heads(kinds[0], *size)
            if attention != mhe or size != usual:
                variants.append(Variant(name, question, attention, MHE, options))
            if attention == mhe:
                options = {**options, "shared_projection_init": "head"}
                variants.append(Variant(f"{name}-head", "start", mhe, MHE, options))
    if not variants:
        what = f"--budget {budget}: no kind of the row {recipe.row} comes within {args.within:.1%}"
        raise UserError(f"{what} of it: give another budget, or a larger --within")
    return [*references, *variants]


def fitting(row: str, kinds: tuple[str, ...], budget: int, within: float) -> list[tuple[int, int]]:
    """At most three heads and widths within a share of the budget: the row's number of heads, half
    of it (or the nearest numbers with which a whole width comes so close), and the row's width.
    """
    usual, of_row = heads_of(row)
    fits = []
    for wanted, fixed in ((usual, None), (usual // 2, None), (usual, of_row)):
        for heads in sorted(range(1, 2 * usual + 1), key=lambda n: abs(n - wanted)):
            width = fixed or nearest_width(row, kinds, heads, budget)
            if abs(parameters(row, kinds, heads, width) - budget) <= within * budget:
                fits.append((heads, width))
                break
    return list(dict.fromkeys(fits))


def nearest_width(row: str, kinds: tuple[str, ...], heads: int, budget: int) -> int:
    """The width of heads that is nearest to the budget; of a kind with one width, that."""
    cost = functools.partial(parameters, row, kinds, heads)
    if not cost(1):
        return sizes(row).embed_dim // heads
    above = bisect_left(range(8 * sizes(row).embed_dim), budget, lo=1, key=cost)
    return min((max(1, above - 1), above), key=lambda width: abs(cost(width) - budget))


@functools.cache
def parameters(row: str, kinds: tuple[str, ...], heads: int, width: int) -> int:
    """The attention parameters of a model of the row; 0 where a kind cannot be of that size."""
    options = Namespace(**{**sizes(row).options(), **of_heads(kinds[0], heads, width)})
    vars(options).update(zip(PLACES.values(), kinds, strict=True))
    try:
        with without_memory():
            each = sum(total_parameters(build_place(options, place)) for place in PLACES)
    except ValueError:
        return 0
    return sizes(row).layers * each


def uptrain(args: Namespace, recipe: Recipe) -> list[Variant]:
    """MHA; each kind from scratch and from MHA; and MHA with as many further updates."""
    variants = [Variant(MHA, REFERENCE, everywhere(MHA), MHA)]
    for kind in (*args.attention, MHA):
        question, attention = "further" if kind == MHA else "uptrained", everywhere(kind)
        if kind != MHA:
            variants.append(Variant(kind, "scratch", attention, MHA))
        start = {"to": kind, "sentences": args.sentences}
        how = Variant(f"{question}-{kind}", question, attention, MHA, {}, args.further, start)
        variants.append(how)
    return variants


def collaborative_curve(args: Namespace, recipe: Recipe) -> list[Variant]:
    """MHA, and for each D collaborative attention from MHA and from scratch, and narrow MHA."""
    row, attention = sizes(recipe.row), everywhere("collaborative")
    variants = [Variant(MHA, REFERENCE, everywhere(MHA), MHA)]
    for dim in sorted(args.dims):
        options = {"collaborative_dim": dim}
        start = decomposition(dim, args.iterations, args.sentences)
        for question, updates in (("decomposed", 0.0), ("fine-tuned", args.further)):
            how = (attention, MHA, options, updates, start)
            variants.append(Variant(f"{question}-D{dim}", question, *how))
        variants.append(Variant(f"scratch-D{dim}", "scratch", attention, MHA, options))
        if dim % row.heads == 0 and dim != row.embed_dim:
            options = {"attention_head_dim": dim // row.heads}
            variants.append(Variant(f"narrow-D{dim}", "narrow", everywhere(MHA), MHA, options))
    return variants


def decomposition(dim: int, iterations: int, sentences: int = 0) -> dict[str, Any]:
    """The start of a model with collaborative attention of width ``dim``."""
    how = {"iterations": iterations, "sentences": sentences}
    return {"to": "collaborative", "collaborative_dim": dim, **how}


_MAKERS = {
    "gap-study": gap,
    "equal-budget": equal_budget,
    "precision-study": precision,
    "uptrain": uptrain,
    "collaborative-curve": collaborative_curve,
}
_TEXTS = yaml_beside(__file__, "variants.yaml")
STUDIES = {name: Study(**_TEXTS[name], variants=make) for name, make in _MAKERS.items()}
