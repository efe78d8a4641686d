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
#: Flat gradients would make all weights one parameter.
_DECAY = {"optimizer": "adam_mhe", "fp16_no_flatten_grads": True}
#: Name, question and options of changes to MHE-Mul.
_CHANGES: tuple[tuple[str, str, dict[str, Any]], ...] = (
    ("init-head", "init", {"shared_projection_init": "head"}),
    ("init-xavier", "init", {"shared_projection_init": "xavier"}),
    ("std-0.1", "embeddings", {"head_embedding_std": 0.1}),
    ("std-0.5", "embeddings", {"head_embedding_std": 0.5}),
    ("offset-0", "embeddings", {"head_embedding_offset": 0, "head_embedding_std": 1}),
    ("decay-0.1", "decay", {**_DECAY, "head_embedding_weight_decay": 0.1}),
    ("decay-1", "decay", {**_DECAY, "head_embedding_weight_decay": 1.0}),
)


def variants(args: argparse.Namespace, recipe: Recipe) -> Sequence[Variant]:
    """Every variant of a row, the references first."""
    mha, mhe, (rate,) = everywhere(MHA), everywhere(MHE), recipe.training.options["lr"]
    found = [Variant(MHE, "reference", mhe, MHE), Variant(MHA, "reference", mha, MHE)]
    found += [
        Variant(name, question, mhe, MHE, options) for name, question, options in _CHANGES
    ]
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
    per_width = {n: row.embed_dim * (n + 3) + 3 * n for n in (1, 2, 8, 16, row.heads)}
    parameters = row.embed_dim // row.heads * per_width.pop(row.heads)  # of a sublayer
    found = []
    for heads, each in per_width.items():
        width = round(parameters / each)
        options = of_heads(heads, width)
        found.append(Variant(f"heads-{heads}x{width}", "heads", everywhere(MHE), MHE, options))
    width = round(parameters / (4 * row.embed_dim * row.heads))
    options = of_heads(row.heads, width)
    return [*found, Variant(f"mha-{row.heads}x{width}", "heads", everywhere(MHA), MHE, options)]


def of_heads(heads: int, width: int) -> dict[str, Any]:
    """The options of a number of heads and their width."""
    sides = {"encoder_attention_heads": heads, "decoder_attention_heads": heads}
    return {**sides, "attention_head_dim": width}


GAP = Study("gap", "Why the gap?", QUESTIONS, variants)
