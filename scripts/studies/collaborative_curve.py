"""``collaborative-curve``: BLEU against D, the figure of Cordonnier et al. 2020 on one's own row.

Four series over the width D of shared queries and keys: a trained MHA decomposed to D without
fine-tuning, the same after a short fine-tuning, collaborative attention trained from scratch, and
MHA whose keys are as wide in all.
"""

import argparse
from collections.abc import Sequence
from typing import Any

from fairseq_mhe.common.arguments import positive, positive_list
from fairseq_mhe.convert.to_collaborative import report, to_collaborative
from fairseq_mhe.models.architectures import sizes
from fairseq_mhe.runs.recipes import Recipe
from studies.study import MHA, Start, Study, Variant, everywhere
from studies.uptraining import add_further

QUESTIONS = {
    "reference": "MHA",
    "decomposed": "MHA decomposed to the width D, not fine-tuned",
    "fine-tuned": "decomposed and fine-tuned",
    "scratch": "collaborative attention from scratch",
    "narrow": "MHA with heads D/n wide, values too",
}


def add_decomposition(parser: argparse.ArgumentParser) -> None:
    """Options of studies that decompose models to collaborative attention."""
    add, dims = parser.add_argument, "16,32,64,128"
    add("--dims", type=positive_list, default=dims, metavar="D,...", help=f"widths ({dims})")
    add("--iterations", type=positive, default=200, metavar="N", help="rounds of the decomposition")
    add("--unweighted", action="store_true", help="decompose the bare weights, as the paper does")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of ``collaborative-curve`` beside those of every study."""
    add_decomposition(parser)
    add_further(parser, 0.1)


def variants(args: argparse.Namespace, recipe: Recipe) -> Sequence[Variant]:
    """MHA, and the series for each D."""
    row = sizes(recipe.row)
    found = [Variant(MHA, "reference", everywhere(MHA), MHA)]
    kind = everywhere("collaborative")
    for dim in sorted(set(args.dims)):
        options = {"collaborative_dim": dim}
        start = decomposition(dim, args)
        for name, updates in (("decomposed", 0.0), ("fine-tuned", args.further)):
            found.append(Variant(f"{name}-D{dim}", name, kind, MHA, options, updates, start))
        found.append(Variant(f"scratch-D{dim}", "scratch", kind, MHA, options))
        if dim % row.heads == 0 and dim != row.embed_dim:
            options = {"attention_head_dim": dim // row.heads}
            found.append(Variant(f"narrow-D{dim}", "narrow", everywhere(MHA), MHA, options))
    return sorted(found, key=lambda variant: list(QUESTIONS).index(variant.question))


def decomposition(dim: int, args: argparse.Namespace) -> Start:
    """A model with collaborative attention of width ``dim``, of one with heads."""
    settings = {"dim": dim, "iterations": args.iterations, "weighted": not args.unweighted}
    settings["sentences"] = args.sentences

    def convert(output: Any, material: Any) -> Any:
        weighted = settings["weighted"]
        return report(to_collaborative(output, dim, args.iterations, material, weighted))

    return Start(settings, convert)


STUDY = Study("collaborative-curve", "Collaborative attention by D", QUESTIONS, variants)
