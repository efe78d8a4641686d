"""How a model is decoded; apart from the recipes, which import fairseq."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Decoding:
    """Beam search; a hypothesis has at most ``max_len_a`` * source + ``max_len_b`` tokens."""

    beam: int
    lenpen: float
    max_len_a: float
    max_len_b: int
    max_tokens: int

    def flags(self) -> list[str]:
        """The settings as fairseq-generate's options."""
        words = ["--beam", str(self.beam), "--lenpen", str(self.lenpen)]
        words += ["--max-tokens", str(self.max_tokens)]
        return [*words, "--max-len-a", str(self.max_len_a), "--max-len-b", str(self.max_len_b)]
