"""How a model is decoded; apart from the recipes, which import fairseq."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Decoding:
    """Beam search; a hypothesis has at most ``max_len_a`` * source + ``max_len_b`` tokens."""

    beam: int = 5
    lenpen: float = 1.0
    max_tokens: int = 2000
    max_len_a: float = 0
    max_len_b: int = 200
