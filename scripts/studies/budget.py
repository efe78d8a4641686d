"""``equal-budget``: every kind of attention at the same number of parameters, new ones too.

Each kind is narrowed or widened to a budget, by default what MHE-Mul has in the row, and judged by
validation loss first: its noise between seeds is far below the differences, where BLEU's is not.
"""

import argparse
import functools
from collections.abc import Sequence
from dataclasses import dataclass

from fairseq_mhe.attention import KINDS
from fairseq_mhe.common.arguments import positive
from fairseq_mhe.common.errors import UserError
from fairseq_mhe.models.options import PLACES
from fairseq_mhe.runs.recipes import Recipe
from studies import trainings
from studies.budget_report import MHA, MHE, QUESTIONS, report
from studies.budget_sizes import Size, fitting, of_row
from studies.study import Report, Study
from studies.trainings import REFERENCE, Done, Variant, everywhere

#: Kinds that are compared with the paper's.
NEW = ("mhe_conv", "mha_conv")
#: How mhe_conv's shared projections start: what of a gain is that alone.
_START = ("--shared-projection-init", "head")


@dataclass(frozen=True)
class Plan:
    """What is trained for a ``budget``; ``unmet``: the nearest sizes of kinds that cannot be."""

    budget: int
    variants: tuple[Variant, ...]
    unmet: tuple[Size, ...]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of ``equal-budget``."""
    trainings.add_arguments(parser, list(QUESTIONS))
    told = "attention parameters of a model (default: those of the row's mhe_mul)"
    parser.add_argument("--budget", type=positive, metavar="N", help=told)
    told = "share of the budget that a size may be off (default: %(default)s)"
    parser.add_argument("--within", type=float, default=0.01, metavar="F", help=told)


def run(args: argparse.Namespace) -> None:
    """Train, translate and score what is not, a few at a time, and report after each few."""
    if not 0 <= args.within < 1:
        raise UserError(f"--within {args.within:g} is no share: give 0 or more, and less than 1")

    def variants(recipe: Recipe) -> Sequence[Variant]:
        return plan(recipe.row, args.budget, args.within).variants

    def reported(study: Study, recipe: Recipe, done: Done, left: Sequence[str]) -> Report:
        planned = plan(recipe.row, args.budget, args.within)
        return report(study, recipe, done, left, planned.budget, planned.unmet)

    trainings.run(args, variants, reported)


@functools.cache
def plan(row: str, budget: int | None, within: float) -> Plan:
    """The variants of a row, the two references first.

    Raises:
        UserError: no kind comes close enough to the budget.
    """
    own = of_row(row, MHE)
    budget = budget or own.parameters
    sizes: list[Size] = []
    unmet: list[Size] = []
    uniform = [everywhere(kind) for kind in (*NEW, *(kind for kind in KINDS if kind not in NEW))]
    uneven = [{**everywhere(MHE), place: MHA} for place in PLACES]
    for attention in (*uniform, *uneven):
        met, nearest = fitting(row, attention, budget, within)
        sizes += met
        unmet += [nearest] if nearest else []
    if not sizes:
        best = min(unmet, key=lambda size: abs(size.off(budget)))
        raise UserError(
            f"--budget {budget}: no kind of the row {row} comes within {within:.1%} of it "
            f"(nearest: {best.name} with {best.parameters:,} attention parameters)"
        )
    references = [Variant(name, REFERENCE, everywhere(name)) for name in (MHE, MHA)]
    return Plan(budget, (*references, *_variants(sizes, own)), tuple(unmet))


def _variants(sizes: Sequence[Size], own: Size) -> list[Variant]:
    """In the order of their questions; MHE-Mul's own size is a reference already."""
    found: dict[str, list[Variant]] = {"new": [], "start": [], "existing": [], "place": []}
    for size in sizes:
        attention, words = size.attention, size.options()
        if size != own:
            question = _question(size)
            found[question].append(Variant(size.name, question, attention, words))
        if attention == everywhere(MHE):
            other = Variant(f"{size.name}-head", "start", attention, (*words, *_START))
            found["start"].append(other)
    return [variant for variants in found.values() for variant in variants]


def _question(size: Size) -> str:
    if len(set(size.attention.values())) > 1:
        return "place"
    return "new" if size.attention["cross"] in NEW else "existing"
