"""``equal-budget``: every kind of attention at the same number of parameters.

Each kind is narrowed or widened to a budget, by default what MHE-Mul has in the row, and judged by
validation loss first: its noise between seeds is far below the differences, where BLEU's is not.
"""

import argparse
import functools
from bisect import bisect_left
from collections.abc import Sequence
from typing import Any

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
    "start": "MHE-Mul with shared projections that start as small as mhe_conv's do",
    "kinds": "every kind, narrowed or widened",
    "place": "the same parameters, more of them in one place: MHA there, narrow MHE-Mul elsewhere",
}


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
    usual = (row.heads, row.embed_dim // row.heads)
    budget = args.budget or parameters(recipe.row, (MHE,) * 3, *usual)
    found = [Variant(name, "reference", everywhere(name), MHE) for name in (MHE, MHA)]
    for attention in (*map(everywhere, KINDS), *({**own, place: MHA} for place in PLACES)):
        kinds = tuple(attention.values())
        for heads, width in fitting(recipe.row, kinds, budget, args.within):
            name = f"{kind_name(attention)}-{heads}x{width}"
            options = {**of_heads(heads, width), **_fixed(kinds[0])}
            question = "kinds" if len(set(kinds)) == 1 else "place"
            if attention != own or (heads, width) != usual:
                found.append(Variant(name, question, attention, MHE, options))
            if attention == own:
                start = {**options, "shared_projection_init": "head"}
                found.append(Variant(f"{name}-head", "start", own, MHE, start))
    if len(found) == 2:
        raise UserError(
            f"--budget {budget}: no kind of the row {recipe.row} comes within {args.within:.1%} of "
            "it: give another budget, or a larger --within"
        )
    return found


def _fixed(kind: str) -> dict[str, Any]:
    """The options without which a kind would be another at another size: two groups of heads."""
    flags = {option.flag for option in KINDS[kind].OPTIONS}
    return {"attention_kv_heads": 2} if "attention_kv_heads" in flags else {}


def fitting(
    row: str, kinds: tuple[str, ...], budget: int, within: float
) -> list[tuple[int, int]]:
    """The heads and widths of kinds that come ``within`` a share of the budget, at most three.

    With the row's number of heads and with half of it, or the nearest numbers of heads with which a
    whole width comes so close; and as many heads of the row's width.
    """
    usual, width = sizes(row).heads, sizes(row).embed_dim // sizes(row).heads
    found = []
    for wanted, fixed in ((usual, None), (max(1, usual // 2), None), (usual, width)):
        for heads in sorted(range(1, 2 * usual + 1), key=lambda n: (abs(n - wanted), n)):
            size = heads, fixed or _width(row, kinds, heads, budget)
            if abs(parameters(row, kinds, *size) - budget) <= within * budget:
                found.append(size)
                break
    return list(dict.fromkeys(found))


def _width(row: str, kinds: tuple[str, ...], heads: int, budget: int) -> int:
    """The width of heads that is nearest to the budget; of a kind with one width, that."""
    if not parameters(row, kinds, heads, 1):
        return sizes(row).embed_dim // heads
    widths = range(1, 8 * sizes(row).embed_dim)
    above = bisect_left(widths, budget, key=lambda width: parameters(row, kinds, heads, width))
    near = widths[max(0, above - 1) : above + 1]
    return min(near, key=lambda width: abs(parameters(row, kinds, heads, width) - budget))


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


BUDGET = Study("equal-budget", "Equal budget", QUESTIONS, variants, add_arguments)
