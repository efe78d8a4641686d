"""How language models are pre-trained and fine-tuned: every number, with its source."""

from dataclasses import asdict, dataclass
from typing import Any

from fairseq_mhe.common.errors import UserError


def shared_out(batch: int, most: int, workers: int) -> tuple[int, int]:
    """An update of ``batch`` examples on so many devices: those that each takes at a time, at most
    ``most``, and how many times.

    Raises:
        UserError: the devices cannot share it evenly.
    """
    share, rest = divmod(batch, workers)
    if rest:
        fitting = ", ".join(str(n) for n in range(1, 65) if batch % n == 0)
        raise UserError(
            f"an update of {batch:,} examples cannot be shared evenly by {workers} devices: take "
            f"{fitting} of them"
        )
    times = next(n for n in range(1, share + 1) if share % n == 0 and share // n <= most)
    return share // times, times


@dataclass(frozen=True)
class Pretraining:
    """``batch`` blocks of ``tokens`` subwords an update, in mini-batches of ``mini``.

    ``masked``: the share of subwords that a masked model is asked for.
    """

    updates: int
    batch: int
    mini: int
    tokens: int
    lr: float
    warmup: int
    weight_decay: float = 0.01
    dropout: float = 0.1
    masked: float = 0.15

    def flags(self) -> list[str]:
        """fairseq's options but for the precision's and `shared_out`'s."""
        words = {
            "tokens-per-sample": self.tokens,
            "lr": self.lr,
            "warmup-updates": self.warmup,
            "total-num-update": self.updates,
            "max-update": self.updates,
            "weight-decay": self.weight_decay,
            "dropout": self.dropout,
            "attention-dropout": self.dropout,
        }
        flags = [word for name, value in words.items() for word in (f"--{name}", str(value))]
        fixed = "--adam-eps 1e-06 --lr-scheduler polynomial_decay"
        return [*flags, *fixed.split(), "--adam-betas", "(0.9, 0.98)"]

    def settings(self) -> dict[str, Any]:
        """As a run keeps it."""
        return asdict(self)


@dataclass(frozen=True)
class Finetuning:
    """``epochs`` over a task in batches of ``batch`` examples; warm-up over 6% of the updates."""

    lr: float
    batch: int
    epochs: int
    weight_decay: float = 0.1

    def updates(self, examples: int) -> int:
        """How many all epochs have."""
        return -(-examples // self.batch) * self.epochs

    def flags(self, examples: int) -> list[str]:
        """The same, for a task of so many examples."""
        updates = self.updates(examples)
        words = {
            "lr": self.lr,
            "warmup-updates": max(1, updates * 6 // 100),
            "total-num-update": updates,
            "max-update": updates,
            "weight-decay": self.weight_decay,
            "dropout": 0.1,
            "attention-dropout": 0.1,
        }
        flags = [word for name, value in words.items() for word in (f"--{name}", str(value))]
        fixed = "--adam-eps 1e-06 --lr-scheduler polynomial_decay"
        return [*flags, *fixed.split(), "--adam-betas", "(0.9, 0.98)"]


#: By row of `models.families`. "base" is fairseq's own configuration of RoBERTa's base size
#: (examples/roberta/config/pretraining/base.yaml); GPT's is the same, with the shorter warm-up that
#: a causal model bears. Those for CPUs are our own, for one pass over 20 (tiny) or 40 million
#: subwords: without dropout, as in one pass nothing is learnt by heart (Geiping and Goldstein 2023,
#: arXiv 2212.14034), with 40% masked (Wettig et al. 2023, arXiv 2202.08005), in small batches.
PRETRAINING = {
    "base": Pretraining(125_000, 2048, 16, 512, 0.0005, 10_000),
    "gpt": Pretraining(125_000, 2048, 16, 512, 0.0005, 4_000),
    "small": Pretraining(20_000, 16, 16, 128, 0.0005, 1_000, dropout=0.0, masked=0.4),
    "tiny": Pretraining(10_000, 16, 16, 128, 0.001, 500, dropout=0.0, masked=0.4),
}
#: fairseq's (examples/roberta/config/finetuning): 1e-05 for CoLA and SST-2, 32 sentences of SST-2.
#: SQuAD as it is commonly fine-tuned (Liu et al. 2019, table 10: 48 windows, 2 epochs, weight decay
#: 0.01, here with BERT's 3e-05).
_BASE = {
    "cola": Finetuning(1e-05, 16, 10),
    "sst2": Finetuning(1e-05, 32, 10),
    "squad1": Finetuning(3e-05, 48, 2, 0.01),
    "squad2": Finetuning(3e-05, 48, 2, 0.01),
    # A passage is an example for each of its entities.
    "record": Finetuning(2e-05, 16, 2),
    "": Finetuning(2e-05, 16, 10),
}
#: Our own, for the small rows: larger steps, and fewer passes over what is large.
_LARGE = ("sst2", "qqp", "mnli", "qnli", "record", "squad1", "squad2")


def finetuning(row: str, task: str) -> Finetuning:
    """The recipe of a model's row for a task."""
    if row == "base":
        return _BASE.get(task, _BASE[""])
    return Finetuning(0.0003, 32, 3 if task in _LARGE else 10)
