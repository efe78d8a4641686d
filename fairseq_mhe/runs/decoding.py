"""Options of decoding; bundles use them without fairseq, so this module does not import it."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Decoding:
    """Beam search; hypotheses have at most ``max_len_a`` * source length + ``max_len_b`` tokens."""

    beam: int = 5
    lenpen: float = 1.0
    max_tokens: int = 2000
    max_len_a: float = 0
    max_len_b: int = 200
