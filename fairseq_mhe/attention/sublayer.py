"""What a kind of attention says beside its hooks: sizes, options, projections, heads, a start."""

from dataclasses import dataclass
from typing import Any

from torch import nn

from fairseq_mhe.attention.fitting import Fitted, Parameters, Trained
from fairseq_mhe.attention.heads import Heads
from fairseq_mhe.common.errors import UserError

#: fairseq's gain for projections that are stored apart but would be one matrix of three times the
#: height.
PACKED_GAIN = 2**-0.5


@dataclass(frozen=True)
class Option:
    """One option of a kind, declared once: its argument, its command-line options, its refusals.

    ``flag``: its name among a model's options, fairseq-train's with underscores; ``default``: None
    where the kind works it out from its sizes; ``choices``: all values that it may have.
    """

    flag: str
    type: type
    default: Any
    help: str
    choices: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """Of the sublayer's argument and of its attribute."""
        return self.flag.removeprefix("attention_")

    def value(self, given: Any) -> Any:
        """``given``, or the default where that is None.

        Raises:
            ValueError: it is none of the choices.
        """
        value = self.default if given is None else given
        if self.choices and value is not None and value not in self.choices:
            known = ", ".join(self.choices)
            raise ValueError(f"unknown {self.name} {value!r}; choose one of: {known}")
        return value


_HEAD_DIM = Option(
    "attention_head_dim", int, None, "width of a head (default: embedding dimension / heads)"
)


class Sublayer(nn.Module):
    """The sizes, options and projections of one attention sublayer.

    C ``embed_dim``, H ``num_heads``, d ``head_dim``, Hk and Hv the key and value heads that are
    kept (``key_heads``, ``value_heads``); ``key_head_dim`` is the width of a kept key.

    Args:
        embed_dim: width C of queries and output.
        num_heads: H.
        kdim, vdim: width of the key and value inputs (default: ``embed_dim``).
        dropout: probability with which attention weights are dropped in training.
        bias: give every projection a bias. The published parameter counts have none, so the default
            is False.
        self_attention: keys and values come from the query's own sequence.
        encoder_decoder_attention: keys and values both come from the encoder's output.
        q_noise, qn_block_size: fairseq's quantisation noise, which is refused unless 0.
        kind: the registry's name, for messages.
        options: values of ``OPTIONS`` by name; None is the default.

    Raises:
        ValueError: sizes that do not fit, or a value that this module does not support.
    """

    #: Options that are not every fairseq attention's.
    OPTIONS: tuple[Option, ...] = (_HEAD_DIM,)
    #: Why the kind cannot be written out as ordinary heads, where it cannot.
    no_heads = "this kind does not say how"
    #: Which sublayers of the kind have a stock form, for a message where one has none.
    folds = "heads wider than embedding dimension / heads do not fold"
    #: The weights of its written-out heads are a linear function of its own.
    linear_heads = True
    #: :meth:`fitted` takes tensorly, an extra.
    fits_by_tensorly = False
    #: Keys and values are one and the same tensor, cached once.
    keys_are_values = False
    #: ``merge`` wants each row's sum of attention weights where dropout makes it differ from 1.
    needs_row_sums = False

    head_dim: int
    out_proj: nn.Linear

    def __init__(
        self,
        embed_dim: int,
        num_heads: int,
        *,
        kdim: int | None = None,
        vdim: int | None = None,
        dropout: float = 0.0,
        bias: bool = False,
        self_attention: bool = False,
        encoder_decoder_attention: bool = False,
        q_noise: float = 0.0,
        qn_block_size: int = 8,
        kind: str = "",
        **options: Any,
    ) -> None:
        super().__init__()
        self.kind = kind
        unused = sorted(set(options) - {option.name for option in self.OPTIONS})
        if unused:
            raise ValueError(f"attention {kind!r} does not use {', '.join(unused)}: leave it out")
        if q_noise:
            raise ValueError(
                f"quantisation noise ({q_noise}) is not supported: leave --quant-noise-pq at 0"
            )
        if self_attention and encoder_decoder_attention:
            raise ValueError(
                "an attention is either self_attention or encoder_decoder_attention, not both"
            )
        if self_attention and not {kdim, vdim} <= {None, embed_dim}:
            needed = f"kdim and vdim equal to embed_dim {embed_dim}"
            raise ValueError(f"self-attention needs {needed}, not {kdim}, {vdim}")
        if not 0 <= dropout <= 1:
            raise ValueError(f"dropout is a probability, not {dropout}")
        self.embed_dim = embed_dim
        self.num_heads = self.query_heads = self.key_heads = self.value_heads = num_heads
        self.kdim = embed_dim if kdim is None else kdim
        self.vdim = embed_dim if vdim is None else vdim
        self.dropout = dropout
        self.dropout_in_inference = False
        self.bias = bias
        self.self_attention = self_attention
        self.encoder_decoder_attention = encoder_decoder_attention
        for option in self.OPTIONS:
            setattr(self, option.name, option.value(options.get(option.name)))
        self.head_dim = _checked_head_dim(embed_dim, num_heads, self.head_dim)
        self.key_head_dim = self.head_dim
        self.scaling = self.head_dim**-0.5

    @property
    def cached_values(self) -> int:
        """Numbers cached for one position: Hk dk + Hv dv, or Hk dk where keys are the values."""
        keys = self.key_heads * self.key_head_dim
        return keys if self.keys_are_values else keys + self.value_heads * self.head_dim

    def project(self, queries: int, kept: int) -> None:
        """Make fairseq's four projections, of ``queries`` heads and of ``kept`` keys and values."""
        self.query_heads, self.key_heads, self.value_heads = queries, kept, kept
        self.k_proj = self.input_linear(self.kdim, kept * self.head_dim)
        self.v_proj = self.input_linear(self.vdim, kept * self.head_dim)
        self.q_proj = self.input_linear(self.embed_dim, queries * self.head_dim)
        self.out_proj = self.output_linear()

    def check_one_input(self) -> None:
        """Keys and values are made by one projection.

        Raises:
            ValueError: their inputs are not equally wide.
        """
        if self.kdim != self.vdim:
            raise ValueError(
                f"{self.kind} projects keys and values together: kdim {self.kdim} and vdim "
                f"{self.vdim} differ"
            )

    def gain(self, width: int) -> float:
        """The gain with which a projection from inputs of ``width`` starts: as fairseq's."""
        return PACKED_GAIN if self.kdim == self.vdim == self.embed_dim else 1.0

    def linear(self, in_features: int, out_features: int, gain: float = 1.0) -> nn.Linear:
        """A projection, initialised as fairseq's MultiheadAttention does: Xavier uniform."""
        layer = nn.Linear(in_features, out_features, bias=self.bias)
        nn.init.xavier_uniform_(layer.weight, gain=gain)
        return layer

    def input_linear(self, in_features: int, out_features: int) -> nn.Linear:
        """A projection of the input, with the kind's gain."""
        return self.linear(in_features, out_features, self.gain(in_features))

    def output_linear(self) -> nn.Linear:
        """W_O, from all heads to C; its bias starts at zero, as fairseq's."""
        layer = self.linear(self.num_heads * self.head_dim, self.embed_dim)
        if layer.bias is not None:
            nn.init.zeros_(layer.bias)
        return layer

    def written_out(self) -> Heads:
        """The heads of this sublayer; they compute the same as it does, dropout aside.

        Raises:
            UserError: the kind has none.
        """
        raise UserError(
            f"{self.kind} attention is not written out as ordinary heads: {self.no_heads}"
        )

    def fitted(self, trained: Trained) -> Fitted:
        """The parameters that bring this sublayer closest to trained heads, on their inputs."""
        raise NotImplementedError

    def pooled(self, heads: Heads) -> Parameters:
        """The parameters of this sublayer with means over ``heads`` as its shared projections.

        Raises:
            ValueError: the heads are wider than this sublayer's.
        """
        raise NotImplementedError

    def extra_repr(self) -> str:
        """Sizes, for printing a model."""
        kept = f"{self.key_heads}+{self.value_heads}"
        return f"heads={self.num_heads}, head_dim={self.head_dim}, kept={kept}"


def _checked_head_dim(embed_dim: int, num_heads: int, head_dim: int | None) -> int:
    if num_heads < 1 or embed_dim < 1:
        raise ValueError(f"embed_dim {embed_dim} and num_heads {num_heads} must both be positive")
    if head_dim is None:
        if embed_dim % num_heads:
            raise ValueError(
                f"embed_dim {embed_dim} is not divisible by num_heads {num_heads}: "
                "change one of them"
            )
        return embed_dim // num_heads
    if head_dim < 1:
        raise ValueError(f"head_dim must be positive, not {head_dim}")
    return head_dim
