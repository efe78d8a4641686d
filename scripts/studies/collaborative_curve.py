"""``collaborative-curve``: BLEU against D, the figure of Cordonnier et al. 2020."""

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from fairseq_mhe.common.arguments import positive, positive_list
from fairseq_mhe.convert.change_kind import convert
from fairseq_mhe.models.architectures import sizes
from fairseq_mhe.runs.recipes import Recipe
from studies.study import MHA, Start, Study, Variant, everywhere
from studies.uptraining import add_further

#: D: the width of all shared queries and keys.
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
    add(
        "--iterations",
        type=positive,
        default=200,
        metavar="N",
        help="rounds of the decomposition",
    )
    add(
        "--unweighted",
        action="store_true",
        help="decompose the bare weights, as the paper does",
    )


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
        options, start = {"collaborative_dim": dim}, decomposition(dim, args)
        for name, updates in (("decomposed", 0.0), ("fine-tuned", args.further)):
            found.append(
                Variant(f"{name}-D{dim}", name, kind, MHA, options, updates, start, dim)
            )
        found.append(Variant(f"scratch-D{dim}", "scratch", kind, MHA, options, x=dim))
        if dim % row.heads == 0 and dim != row.embed_dim:
            options = {"attention_head_dim": dim // row.heads}
            found.append(
                Variant(f"narrow-D{dim}", "narrow", everywhere(MHA), MHA, options, x=dim)
            )
    return found


def decomposition(dim: int, args: argparse.Namespace) -> Start:
    """A model with collaborative attention of width ``dim``, of one with heads."""
    how = {"iterations": args.iterations, "weighted": not args.unweighted}

    def decompose(output: Path, material: Any) -> dict[str, Any]:
        return convert(output, "collaborative", material, collaborative_dim=dim, **how)

    return Start({"dim": dim, **how, "sentences": args.sentences}, decompose)


_TITLE = "Collaborative attention by D"
CURVE = Study("collaborative-curve", _TITLE, QUESTIONS, variants, add_arguments)
