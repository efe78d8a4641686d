"""``gap-study``: why MHE-Mul stays behind MHA: each variant changes one thing."""

import argparse
from collections.abc import Sequence
from typing import Any

from fairseq_mhe.models.architectures import sizes
from fairseq_mhe.models.options import PLACES
from fairseq_mhe.runs.recipes import Recipe
from studies.study import MHA, MHE, Study, Variant, everywhere

QUESTIONS = {
    "reference": "MHE-Mul as the paper has it, and MHA",
    "init": "initial scale of the shared projections "
    "(the default is Xavier's, divided by the root of 2)",
    "embeddings": "offset and spread of the head embeddings (default: 1 and 0.02)",
    "decay": "weight decay of the head embeddings (default: none)",
    "rate": "learning rate, MHA's too",
    "place": "MHE in one place only",
    "heads": "number of heads at the same parameters, MHA's too",
}
_FAR = {"head_embedding_offset": 0, "head_embedding_std": 1}


def variants(args: argparse.Namespace, recipe: Recipe) -> Sequence[Variant]:
    """Every variant of a row, the references first."""
    mha, mhe, rate = everywhere(MHA), everywhere(MHE), recipe.training.options["lr"][0]
    found = [Variant(MHE, "reference", mhe, MHE), Variant(MHA, "reference", mha, MHE)]
    for init in ("head", "xavier"):
        options: dict[str, Any] = {"shared_projection_init": init}
        found.append(Variant(f"init-{init}", "init", mhe, MHE, options))
    for std in (0.1, 0.5):
        options = {"head_embedding_std": std}
        found.append(Variant(f"std-{std}", "embeddings", mhe, MHE, options))
    found.append(Variant("offset-0", "embeddings", mhe, MHE, _FAR))
    for decay in (0.1, 1.0):
        options = {"optimizer": "adam_mhe", "head_embedding_weight_decay": decay}
        options["fp16_no_flatten_grads"] = True  # flat, all are one parameter
        found.append(Variant(f"decay-{decay:g}", "decay", mhe, MHE, options))
    for prefix, attention in (("", mhe), ("mha-", mha)):
        for name, factor in (("half", 0.5), ("double", 2.0)):
            options = {"lr": [rate * factor]}
            found.append(Variant(f"{prefix}lr-{name}", "rate", attention, MHE, options))
    for place in PLACES:
        found.append(Variant(f"only-{place}", "place", {**mha, place: MHE}, MHE))
    return [*found, *_heads(recipe.row)]


def _heads(name: str) -> list[Variant]:
    """Other numbers of heads with the parameters of the row's MHE; MHA with them, too."""
    row = sizes(name)
    per_width = {n: row.embed_dim * (n + 3) + 3 * n for n in (row.heads, 1, 2, 8, 16)}
    parameters = row.embed_dim // row.heads * per_width[row.heads]  # of a sublayer
    others = [heads for heads in (1, 2, 8, 16) if heads != row.heads]
    found = []
    for heads in others:
        width = round(parameters / per_width[heads])
        options = of_heads(heads, width)
        found.append(Variant(f"heads-{heads}x{width}", "heads", everywhere(MHE), MHE, options))
    width = round(parameters / (4 * row.embed_dim * row.heads))
    options = of_heads(row.heads, width)
    return [*found, Variant(f"mha-{row.heads}x{width}", "heads", everywhere(MHA), MHE, options)]


def of_heads(heads: int, width: int) -> dict[str, Any]:
    """The options of a number of heads and their width."""
    sides = {"encoder_attention_heads": heads, "decoder_attention_heads": heads}
    return {**sides, "attention_head_dim": width}


STUDY = Study("gap", "Why the gap?", QUESTIONS, variants)
