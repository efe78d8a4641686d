"""Kinds whose projections serve several heads: how large their weights begin."""

from fairseq_mhe.attention.base import Attention
from fairseq_mhe.attention.sublayer import PACKED_GAIN, Option

_INIT = Option(
    "shared_projection_init",
    str,
    None,
    "scale of the shared projections' initial weights: packed (fairseq's gain), xavier (without "
    "it) or head (as large as those of one head in mha) (default: packed for mhe_mul and mhe_add, "
    "head for mhe_conv)",
    choices=("packed", "xavier", "head"),
)


class SharedProjectionAttention(Attention):
    """Projections that serve several heads begin as ``shared_projection_init`` says."""

    OPTIONS: tuple[Option, ...] = (*Attention.OPTIONS, _INIT)
    #: What ``shared_projection_init`` is unless given.
    start = "packed"
    shared_projection_init: str | None

    def gain(self, width: int) -> float:
        """As ``shared_projection_init`` says, for a projection from inputs of ``width``."""
        start = self.shared_projection_init or self.start
        if start == "head":
            d, n = self.head_dim, self.num_heads
            # As large as the weights of one head in MHA, whose projection is n times as high.
            return PACKED_GAIN * ((width + d) / (width + n * d)) ** 0.5
        return PACKED_GAIN if start == "packed" else 1.0
