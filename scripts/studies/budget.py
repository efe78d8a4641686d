"""``equal-budget``: every kind of attention at the same number of parameters.

Each kind is narrowed or widened to a budget, by default what MHE-Mul has in the row, and judged by
validation loss first: its noise between seeds is far below the differences, where BLEU's is not.
"""

import argparse
import functools
from bisect import bisect_left
from collections.abc import Iterator, Sequence

from fairseq_mhe.attention import KINDS
from fairseq_mhe.common.arguments import positive
from fairseq_mhe.common.errors import UserError
from fairseq_mhe.models.architectures import sizes
from fairseq_mhe.models.build import without_memory
from fairseq_mhe.models.counting import total_parameters
from fairseq_mhe.models.options import PLACES, build_place
from fairseq_mhe.runs.job import kind_name
from fairseq_mhe.runs.recipes import Recipe
from studies.gap import of_heads
from studies.study import MHA, MHE, Study, Variant, everywhere

QUESTIONS = {
    "reference": "the row's MHE-Mul, whose parameters are the budget by default, and the row's MHA",
    "new": "kinds that try to do more with MHE's parameters and cache",
    "start": "MHE-Mul with shared projections that start as small as mhe_conv's do",
    "existing": "the other kinds, narrowed or widened",
    "place": "the same parameters, more of them in one place: MHA there, narrow MHE-Mul elsewhere",
}
NEW = ("mhe_conv", "mha_conv")
_START = {"shared_projection_init": "head"}
#: Options without which a kind at another size would be another kind: gqa with one group is mqa.
_FIXED = {"gqa": {"attention_kv_heads": 2}}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of ``equal-budget`` beside those of every study."""
    add = parser.add_argument
    budget = "attention parameters of a model (default: those of the row's mhe_mul)"
    add("--budget", type=positive, metavar="N", help=budget)
    within = "share of the budget that a size may be off (default: %(default)s)"
    add("--within", type=float, default=0.01, metavar="F", help=within)


def variants(args: argparse.Namespace, recipe: Recipe) -> Sequence[Variant]:
    """Every kind at the sizes that come within a share of the budget, the references first.

    Raises:
        UserError: no kind comes close enough.
    """
    row, own = sizes(recipe.row), everywhere(MHE)
    budget = args.budget or parameters(recipe.row, (MHE,) * 3, *_usual(recipe.row))
    found = [Variant(name, "reference", everywhere(name), MHE) for name in (MHE, MHA)]
    uniform = [everywhere(kind) for kind in dict.fromkeys((*NEW, *KINDS))]
    uneven = [{**own, place: MHA} for place in PLACES]
    for attention in (*uniform, *uneven):
        kinds = tuple(attention[place] for place in PLACES)
        for heads, width in fitting(recipe.row, kinds, budget, args.within):
            name = f"{kind_name(attention)}-{heads}x{width}"
            options = {**of_heads(heads, width), **_FIXED.get(kinds[0], {})}
            if attention != own or (heads, width) != (row.heads, row.embed_dim // row.heads):
                found.append(Variant(name, _question(kinds), attention, MHE, options))
            if attention == own:
                found.append(Variant(f"{name}-head", "start", own, MHE, options | _START))
    if len(found) == 2:
        raise UserError(
            f"--budget {budget}: no kind of the row {recipe.row} comes within {args.within:.1%} of "
            "it: give another budget, or a larger --within"
        )
    return sorted(found, key=lambda variant: list(QUESTIONS).index(variant.question))


def _question(kinds: tuple[str, ...]) -> str:
    if len(set(kinds)) > 1:
        return "place"
    return "new" if kinds[0] in NEW else "existing"


def _usual(row: str) -> tuple[int, int]:
    """The row's own number of heads and their width."""
    size = sizes(row)
    return size.heads, size.embed_dim // size.heads


def fitting(row: str, kinds: tuple[str, ...], budget: int, within: float) -> list[tuple[int, int]]:
    """The heads and widths of kinds that come ``within`` a share of the budget, at most three.

    With the row's number of heads and with half of it, or the nearest numbers of heads with which a
    whole width comes so close; and as many heads of the row's width.
    """
    usual, width = _usual(row)

    def first(sizes: Iterator[tuple[int, int]]) -> list[tuple[int, int]]:
        close = (size for size in sizes if abs(_off(row, kinds, size, budget)) <= within)
        return [size for size in [next(close, None)] if size]

    found = []
    for wanted in (usual, max(1, usual // 2)):
        found += first(
            (heads, _width(row, kinds, heads, budget)) for heads in _nearest(wanted, 2 * usual)
        )
    found += first((heads, width) for heads in _nearest(usual, 2 * usual))
    return list(dict.fromkeys(found))


def _nearest(wanted: int, most: int) -> list[int]:
    """Whole numbers from 1 to ``most``, those nearest to ``wanted`` first."""
    return sorted(range(1, most + 1), key=lambda number: (abs(number - wanted), number))


def _off(row: str, kinds: tuple[str, ...], size: tuple[int, int], budget: int) -> float:
    """How far a size is from the budget, as a share of that; infinitely where it cannot be."""
    return (parameters(row, kinds, *size) or float("inf")) / budget - 1


def _width(row: str, kinds: tuple[str, ...], heads: int, budget: int) -> int:
    """The width of heads that is nearest to the budget; of a kind with one width, that."""
    if not parameters(row, kinds, heads, 1):
        return sizes(row).embed_dim // heads
    widths = range(1, 8 * sizes(row).embed_dim)
    above = bisect_left(widths, budget, key=lambda width: parameters(row, kinds, heads, width))
    near = widths[max(0, above - 1) : above + 1]
    return min(near, key=lambda width: abs(_off(row, kinds, (heads, width), budget)))


@functools.cache
def parameters(row: str, kinds: tuple[str, ...], heads: int, width: int) -> int:
    """The attention parameters of a model of the row; 0 where a kind cannot be of that size."""
    options = argparse.Namespace(**sizes(row).options(), attention_head_dim=width)
    for kind, place in zip(kinds, PLACES, strict=True):
        vars(options)[PLACES[place]] = kind
        vars(options).update(_FIXED.get(kind, {}))
    options.encoder_attention_heads = options.decoder_attention_heads = heads
    try:
        with without_memory():
            each = sum(total_parameters(build_place(options, place)) for place in PLACES)
    except ValueError:
        return 0
    return sizes(row).layers * each


STUDY = Study("equal-budget", "Equal budget", QUESTIONS, variants)
