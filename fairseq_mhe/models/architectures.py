"""The sizes of all models (``--arch``), read from architectures.yaml."""

from collections.abc import Sequence
from dataclasses import dataclass

from fairseq_mhe.common.errors import UserError
from fairseq_mhe.common.files import yaml_beside

#: Default size of a joined dictionary.
VOCABULARY = 32768
#: The names of our models of each family: translation, masked and causal language models.
MODEL_NAME, ROBERTA, CAUSAL = "transformer_mhe", "roberta_mhe", "transformer_lm_mhe"


@dataclass(frozen=True)
class Row:
    """The sizes of one Transformer."""

    embed_dim: int
    ffn_embed_dim: int
    heads: int
    layers: int  # of each side
    dropout: float
    normalize_before: bool = False
    sides: Sequence[str] = ("encoder", "decoder")
    stock: str = ""  # fairseq's architecture that sets all other options

    def options(self) -> dict[str, float]:
        """Return the sizes as fairseq's flat options."""
        options: dict[str, float] = {"dropout": self.dropout}
        for side in self.sides:
            options[f"{side}_embed_dim"] = self.embed_dim
            options[f"{side}_ffn_embed_dim"] = self.ffn_embed_dim
            options[f"{side}_attention_heads"] = self.heads
            options[f"{side}_layers"] = self.layers
            options[f"{side}_normalize_before"] = self.normalize_before
        return options


_SIZES = yaml_beside(__file__, "architectures.yaml")


def _rows(group: str) -> dict[str, Row]:
    in_common = _SIZES["in_common"][group]
    return {name: Row(**(in_common | row)) for name, row in _SIZES[group].items()}


PAPER_ROWS = _rows("paper")
ROWS = {**PAPER_ROWS, **_rows("small")}  # of translation models
ROBERTA_ROWS, LM_ROWS = _rows("roberta"), _rows("language_model")
#: The architectures of language models, which have the name of their model before the row's.
LANGUAGE_NAMES = (
    *(f"{ROBERTA}_{row}" for row in ROBERTA_ROWS),
    *(f"{CAUSAL}_{row}" for row in LM_ROWS),
)


def sizes(row: str) -> Row:
    """Return a row of the translation models; raises UserError if there is none of this name."""
    if row not in ROWS:
        raise UserError(f"unknown row {row!r}; choose one of: {', '.join(ROWS)}")
    return ROWS[row]
