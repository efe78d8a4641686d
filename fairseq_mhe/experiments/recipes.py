"""How each row is trained and decoded: every number in one place; the kind of attention is never part of it."""

from __future__ import annotations

from dataclasses import dataclass, replace


@dataclass(frozen=True)
class Training:
    """What makes a model beside its row, kind of attention, seed and data.

    ``max_tokens``: tokens of a batch, as fairseq's --max-tokens counts them (the longer side, padding included).
    ``checkpoints``: how many times, at equal distances, the model is validated and saved.
    ``average``: how many of the last of them are averaged.
    """

    updates: int
    max_tokens: int
    lr: float
    warmup_updates: int
    dropout: float
    label_smoothing: float
    weight_decay: float
    checkpoints: int
    average: int

    @property
    def interval(self) -> int:
        """Updates between two checkpoints."""
        return max(1, self.updates // self.checkpoints)

    def shortened(self, updates: int) -> Training:
        """The same recipe over another number of updates: the warm-up keeps its share."""
        return replace(self, updates=updates, warmup_updates=max(1, self.warmup_updates * updates // self.updates))

    def flags(self) -> list[str]:
        """The recipe as fairseq-train's options."""
        return [
            *("--max-update", str(self.updates), "--max-tokens", str(self.max_tokens)),
            *("--optimizer", "adam", "--adam-betas", "(0.9, 0.98)", "--weight-decay", str(self.weight_decay)),
            # Falling to zero at the last update: better in a short training than the inverse square root.
            *("--lr-scheduler", "polynomial_decay", "--total-num-update", str(self.updates)),
            *("--lr", str(self.lr), "--warmup-updates", str(self.warmup_updates)),
            *("--criterion", "label_smoothed_cross_entropy", "--label-smoothing", str(self.label_smoothing)),
            *("--dropout", str(self.dropout), "--share-all-embeddings"),
        ]


@dataclass(frozen=True)
class Decoding:
    """Beam search: at most ``max_len_a`` * source + ``max_len_b`` tokens; ``max_tokens`` to a batch."""

    beam: int
    lenpen: float
    max_len_a: float
    max_len_b: int
    max_tokens: int

    def flags(self) -> list[str]:
        """The settings as fairseq-generate's options."""
        return [
            *("--beam", str(self.beam), "--lenpen", str(self.lenpen), "--max-tokens", str(self.max_tokens)),
            *("--max-len-a", str(self.max_len_a), "--max-len-b", str(self.max_len_b)),
        ]


@dataclass(frozen=True)
class Recipe:
    """A row (a name of ``fairseq_mhe.models.architectures``) and how it is trained and decoded."""

    row: str
    training: Training
    decoding: Decoding


#: 2 cores, two models side by side, 9 minutes of training. Chosen by BLEU on valid (MHA, one seed, beam 5): 4,000
#: BPE merges 22.8; 4,000 SentencePiece pieces 21.9, 2,000 pieces 19.1; 1,024 tokens a batch 21.9 against 2,048 with as
#: many tokens in all 20.6; without dropout it overfits after 7 epochs.
QUICKSTART = Recipe(
    row="tiny",
    training=Training(
        updates=3000,
        max_tokens=1024,
        lr=0.003,
        warmup_updates=300,
        dropout=0.1,
        label_smoothing=0.1,
        weight_decay=0.0,
        checkpoints=15,
        average=5,
    ),
    decoding=Decoding(beam=5, lenpen=1.0, max_len_a=1.5, max_len_b=20, max_tokens=2000),
)
