"""The options of kinds: what an option declares, and those that several kinds share."""

import math
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Option:
    """An option of a kind; ``flag`` is its name on fairseq-train's command line, with underscores.

    ``default``: None if the kind computes it from its sizes. ``choices``: the only allowed values.
    ``least``: the least allowed number, or None.
    """

    flag: str
    help: str
    type: type = int
    default: Any = None
    choices: tuple[str, ...] = ()
    least: float | None = 1

    @property
    def name(self) -> str:
        return self.flag.removeprefix("attention_")

    def value(self, given: Any) -> Any:
        """Return ``given``, or the default for None; raise ValueError if it is not allowed."""
        value = self.default if given is None else given
        if self.choices and value not in self.choices:
            known = ", ".join(self.choices)
            raise ValueError(f"unknown {self.name} {value!r}; choose one of: {known}")
        least = -math.inf if self.least is None else self.least
        if isinstance(value, (int, float)) and not value >= least:  # NaN, too
            raise ValueError(f"{self.name} must be {least} or more, but is {value}")
        return value


HEAD_DIM = Option(
    "attention_head_dim", "width of a head (default: embedding dimension / heads)"
)
KV_HEADS = Option(
    "attention_kv_heads",
    "key/value heads, a divisor of the number of heads (default: for gqa 2, or 1 for an odd "
    "number of heads; for skv all heads)",
)
EMBEDDING_STD = Option(
    "head_embedding_std",
    "spread of the head embeddings' initial values N(0, std) (default: 0.02)",
    float,
    0.02,
    least=0,
)
EMBEDDING_OFFSET = Option(
    "head_embedding_offset",
    "number added to a head embedding before multiplying (default: 1)",
    float,
    1.0,
    least=None,
)


def shared_init(default: str) -> Option:
    """Return the option that scales the initial weights of projections that heads share."""
    return Option(
        "shared_projection_init",
        "scale of the shared projections' initial weights: packed (fairseq's gain), xavier "
        "(gain 1) or head (as large as the weights of one head in mha) (default: packed for "
        "mhe_mul and mhe_add, head for mhe_conv)",
        str,
        default,
        ("packed", "xavier", "head"),
    )
