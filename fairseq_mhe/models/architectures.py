"""The sizes of all models, which architectures.yaml lists: ``--arch``."""

from dataclasses import dataclass
from typing import Any

from fairseq_mhe.common.errors import UserError
from fairseq_mhe.common.files import yaml_beside

MODEL_NAME = "transformer_mhe"


@dataclass(frozen=True)
class Row:
    """One size of Transformer."""

    embed_dim: int
    ffn_embed_dim: int
    heads: int
    layers: int  # of each side
    dropout: float
    normalize_before: bool = False
    sides: tuple[str, ...] = ("encoder", "decoder")
    stock: str = ""  # fairseq's architecture, for options that are no sizes

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


_SIZES = yaml_beside(__file__, "architectures.yaml")


def _rows(group: str, **usual: Any) -> dict[str, Row]:
    rows = {}
    for name, row in _SIZES[group].items():
        rows[name] = Row(**{**usual, **row})
    return rows


_CAUSAL = {"normalize_before": True, "sides": ("decoder",), "stock": "transformer_lm_gpt"}
#: Of translation: the paper's rows, and those for smaller corpora and CPUs.
ROWS, SMALL_ROWS = _rows("paper"), _rows("small")
ROBERTA_ROWS = _rows("roberta", sides=("encoder",), stock="roberta")
LM_ROWS = _rows("language_model", **_CAUSAL)


def sizes(row: str) -> Row:
    """The sizes of a row of the translation models, or UserError."""
    rows = {**ROWS, **SMALL_ROWS}
    if row not in rows:
        raise UserError(f"unknown row {row!r}; choose one of: {', '.join(rows)}")
    return rows[row]
