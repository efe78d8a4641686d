"""The sizes of all models, the paper's (Xue & Aletras 2023) and smaller: ``--arch``."""

import functools
from dataclasses import dataclass

from fairseq_mhe.common.errors import UserError

MODEL_NAME = "transformer_mhe"


@dataclass(frozen=True)
class Row:
    """One size of Transformer; ``layers`` of each of its ``sides``.

    ``stock``: fairseq's architecture with the values of options that are no sizes.
    """

    embed_dim: int
    ffn_embed_dim: int
    heads: int
    layers: int
    dropout: float
    normalize_before: bool = False
    sides: tuple[str, ...] = ("encoder", "decoder")
    stock: str = ""

    def options(self) -> dict[str, float]:
        """fairseq's flat options."""
        options: dict[str, float] = {"dropout": self.dropout}
        for side in self.sides:
            options[f"{side}_embed_dim"] = self.embed_dim
            options[f"{side}_ffn_embed_dim"] = self.ffn_embed_dim
            options[f"{side}_attention_heads"] = self.heads
            options[f"{side}_layers"] = self.layers
            options[f"{side}_normalize_before"] = self.normalize_before
        return options


# The feed-forward width is not published; 4 * embed_dim is Vaswani et al.'s (2017, table 3), whose
# rows these mirror.
ROWS = {
    "base": Row(512, 2048, 8, 6, 0.1),
    "16x32": Row(512, 2048, 16, 6, 0.1),
    "4x128": Row(512, 2048, 4, 6, 0.1),
    "4l": Row(512, 2048, 8, 4, 0.1),
    "8l": Row(512, 2048, 8, 8, 0.1),
    "12h": Row(768, 3072, 12, 6, 0.15),
    "big": Row(1024, 4096, 16, 6, 0.3),
}
# For smaller corpora: fairseq's transformer_iwslt_de_en with its recipe's dropout, Wu et al.'s
# (2021) Transformer-Tiny, and two sizes for CPUs; these are pre-norm, which trains stably without a
# long warm-up.
SMALL_ROWS = {
    "iwslt": Row(512, 1024, 4, 6, 0.3),
    "multi30k": Row(128, 256, 4, 4, 0.3),
    # The same, changed as the paper's rows are: heads, layers, width.
    "multi30k_8x16": Row(128, 256, 8, 4, 0.3),
    "multi30k_2x64": Row(128, 256, 2, 4, 0.3),
    "multi30k_3l": Row(128, 256, 4, 3, 0.3),
    "multi30k_6l": Row(128, 256, 4, 6, 0.3),
    "multi30k_6h": Row(192, 384, 6, 4, 0.3),
    "small": Row(256, 1024, 4, 3, 0.1, normalize_before=True),
    "tiny": Row(128, 512, 4, 2, 0.1, normalize_before=True),
}

_Encoder = functools.partial(Row, sides=("encoder",), stock="roberta")
#: "base" is BERT's and the paper's (table 1); the others are for CPUs.
ROBERTA_ROWS = {
    "base": _Encoder(768, 3072, 12, 12, 0.1),
    "small": _Encoder(256, 1024, 4, 6, 0.1),
    "tiny": _Encoder(128, 512, 4, 4, 0.1),
}
_Decoder = functools.partial(
    Row, normalize_before=True, sides=("decoder",), stock="transformer_lm_gpt"
)
#: fairseq's transformer_lm of the same names, and two for CPUs.
LM_ROWS = {
    "gpt": _Decoder(768, 3072, 12, 12, 0.1),
    "gpt2_small": _Decoder(1024, 4096, 16, 24, 0.1),
    "gpt2_medium": _Decoder(1280, 5120, 20, 36, 0.1),
    "gpt2_big": _Decoder(1600, 6400, 25, 48, 0.1),
    "wiki103": _Decoder(1024, 4096, 8, 16, 0.3, stock="transformer_lm_wiki103"),
    "small": _Decoder(256, 1024, 4, 6, 0.1),
    "tiny": _Decoder(128, 512, 4, 4, 0.1),
}


def sizes(row: str) -> Row:
    """The sizes of a row of the translation models, or UserError."""
    rows = {**ROWS, **SMALL_ROWS}
    if row not in rows:
        raise UserError(f"unknown row {row!r}; choose one of: {', '.join(rows)}")
    return rows[row]
