"""The outline of a translation model: the weights of each layer without values, without fairseq."""

from argparse import Namespace

import torch
from torch import nn

from fairseq_mhe.attention import Attention
from fairseq_mhe.common.errors import one_clear_line
from fairseq_mhe.models.architectures import Row
from fairseq_mhe.models.options import PLACES, build_sublayer, check_options, sublayers


def outline(row: Row, vocabulary: int, **options: object) -> nn.Module:
    """Return modules with the weights of a row's model, by names and shapes, for counting.

    fairseq builds the model itself, but its import takes longer than torch's. ``options`` choose
    the attention, as fairseq-train's do; raises UserError for unsuitable ones.
    """
    args = Namespace(**row.options(), **options)
    with one_clear_line():
        check_options(args, tuple(PLACES))
    with torch.device("meta"):
        # An embedding from values draws none.
        embedding = nn.Embedding.from_pretrained(torch.empty(vocabulary, row.embed_dim))
        sides = {}
        for side in row.sides:
            layers = [_layer(row, args, side) for _ in range(row.layers)]
            sides[side] = nn.ModuleDict(
                {"embed_tokens": embedding, "layers": nn.ModuleList(layers)}
            )
            if row.normalize_before:
                sides[side]["layer_norm"] = nn.LayerNorm(row.embed_dim)
        output = nn.Linear(row.embed_dim, vocabulary, bias=False)
        output.weight = embedding.weight
        sides["decoder"]["output_projection"] = output
    model = nn.ModuleDict(sides)
    for _, _, attention in sublayers(model):
        give_memory(attention)
    return model


def _layer(row: Row, args: Namespace, side: str) -> nn.ModuleDict:
    layer = nn.ModuleDict(
        {
            "self_attn": build_sublayer(args, side),
            "self_attn_layer_norm": nn.LayerNorm(row.embed_dim),
            "fc1": nn.Linear(row.embed_dim, row.ffn_embed_dim),
            "fc2": nn.Linear(row.ffn_embed_dim, row.embed_dim),
            "final_layer_norm": nn.LayerNorm(row.embed_dim),
        }
    )
    if side == "decoder":
        layer["encoder_attn"] = build_sublayer(args, "cross")
        layer["encoder_attn_layer_norm"] = nn.LayerNorm(row.embed_dim)
    return layer


def give_memory(attention: Attention) -> None:
    """Move attention to the CPU: on the meta device torch imports its compiler to compute."""
    shapes = {name: weight.shape for name, weight in attention.state_dict().items()}
    weights = {name: torch.empty(shape) for name, shape in shapes.items()}
    attention.load_state_dict(weights, assign=True)
