"""The options of kinds: what an option declares, and the options of the kinds in this package."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Option:
    """An option of a kind; ``flag`` is its name on fairseq-train's command line, with underscores.

    ``default``: a value, or a function that computes it from the layer's sizes. ``choices``: the
    only allowed values. ``least``: the least allowed number, or None.
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

    def value(self, given: Any, layer: Any) -> Any:
        """Return ``given``, or the default of ``layer`` for None; ValueError if not allowed."""
        value = given
        if value is None:
            value = self.default(layer) if callable(self.default) else self.default
        if self.choices and value not in self.choices:
            known = ", ".join(self.choices)
            raise ValueError(f"unknown {self.name} {value!r}; choose one of: {known}")
        least = -math.inf if self.least is None else self.least
        if isinstance(value, (int, float)) and not value >= least:  # NaN, too
            raise ValueError(f"{self.name} must be {least} or more, but is {value}")
        return value


def _share_of_width(layer: Any) -> int:
    """Return C / n; ValueError if it is no whole number."""
    width, rest = divmod(layer.embed_dim, layer.num_heads)
    if rest:
        why = (
            f"embed_dim {layer.embed_dim} is not divisible by num_heads {layer.num_heads}"
        )
        raise ValueError(f"{why}: change one of them")
    return width


HEAD_DIM = Option(
    "attention_head_dim",
    "width of a head (default: embedding dimension / heads)",
    default=_share_of_width,
)
LATENT_DIM = Option(
    "attention_latent_dim",
    "numbers cached for a position, from which all heads compute keys and values "
    "(default: 2 x width of a head)",
    default=lambda layer: 2 * layer.head_dim,
)
COLLABORATIVE_DIM = Option(
    "collaborative_dim",
    "width of the shared queries and keys (default: embedding dimension / 4)",
    default=lambda layer: max(1, layer.embed_dim // 4),
)
TUCKER_RANKS = (
    Option(
        "tucker_head_rank",
        "rank over heads (default: 4, at most the number of heads)",
        default=lambda layer: min(4, layer.num_heads),
    ),
    Option(
        "tucker_query_rank",
        "width of shared queries and values (default: width of a head)",
        default=lambda layer: layer.head_dim,
    ),
    Option(
        "tucker_key_rank",
        "width of shared keys, and of the sum over heads (default: width of a head)",
        default=lambda layer: layer.head_dim,
    ),
)
TPA_RANK = Option(
    "tpa_rank",
    "vectors of a position that all heads share, for keys and for values (default: 1)",
    default=1,
)
QUERY_RANK = Option(
    "attention_query_rank",
    "rank of the queries of all heads (default: 2 x width of a head)",
    default=lambda layer: 2 * layer.head_dim,
)
QUERY_NORM = Option(
    "attention_query_norm",
    "norm of the vectors from which all heads compute queries (default: rms)",
    str,
    "rms",
    ("rms", "none"),
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


def kv_heads(default: Callable[[Any], int]) -> Option:
    """Return the option that sets how many key and value heads there are."""
    return Option(
        "attention_kv_heads",
        "key/value heads, a divisor of the number of heads (default: for gqa 2, or 1 for an odd "
        "number of heads; for skv all heads)",
        default=default,
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
