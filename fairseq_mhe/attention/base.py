"""The shell of every kind of attention: sizes, options, projections, fairseq's calls, the cache."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from fairseq.incremental_decoding_utils import FairseqIncrementalState
from torch import Tensor, nn
from torch.nn.functional import linear

from fairseq_mhe.attention.cache import KeyValueCache
from fairseq_mhe.attention.kernel import Mask, attend, raw_scores
from fairseq_mhe.attention.written_out import WrittenOut
from fairseq_mhe.common.errors import UserError

IncrementalState = dict[str, dict[str, Tensor | None]]

#: fairseq's gain for projections that are stored apart but would be one matrix of three times the
#: height.
PACKED_GAIN = 2**-0.5
#: fairseq's attribute of parameters that an optimizer treats apart, and its value at the head
#: embeddings.
PARAM_GROUP = "head_embeddings"


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
        if self.choices and value not in self.choices:
            known = ", ".join(self.choices)
            raise ValueError(f"unknown {self.name} {value!r}; choose one of: {known}")
        return value


_HEAD_DIM = Option(
    "attention_head_dim", int, None, "width of a head (default: embedding dimension / heads)"
)


def shared_projection_init(default: str) -> Option:
    """The option of kinds whose projections serve several heads: how large weights begin."""
    return Option(
        "shared_projection_init",
        str,
        default,
        "scale of the shared projections' initial weights: packed (fairseq's gain), xavier "
        "(without it) or head (as large as those of one head in mha)",
        choices=("packed", "xavier", "head"),
    )


class Attention(FairseqIncrementalState, nn.Module):
    """One attention sublayer, called as fairseq's ``MultiheadAttention`` is.

    Shapes: T query positions, S key positions, B sentences, C ``embed_dim``, H ``num_heads``, d
    ``head_dim``, Hk and Hv kept key and value heads (``key_heads``, ``value_heads``) of widths dk
    and dv (``key_head_dim``, ``value_head_dim``; both d unless a kind says otherwise).

    A kind derives from this class. It makes its parameters in :meth:`build` and overrides these
    hooks where plain projections (see :meth:`project`) do not do:

    - ``queries(x)``: (T, B, C) -> (B, H, T, dk), carrying whatever the kind folds into the query
      (one head where all would be equal), or (B, H, T, j dk) for a key and j - 1 `neighbours`;
    - ``keys_values(key, value)``: (S, B, kdim), (S, B, vdim) -> (B, Hk, S, dk), (B, Hv, S, dv),
      exactly what is cached;
    - ``merge(heads, row_sums)``: (B, H, T, dv) -> (T, B, C), per-head output change, concatenation
      and W_O.

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
    #: What depends on weights alone, by the method that computes it; None outside generation.
    _kept: dict[str, Tensor] | None = None
    #: It has head embeddings, which ``--optimizer adam_mhe`` treats apart.
    head_embeddings = False
    #: ``queries`` is linear, by ``query_weight``, and ``keys_values`` is ``k_proj`` and ``v_proj``;
    #: what else a kind computes in training on a GPU is its ``apart``.
    projects_together = False
    #: Keys and values are one and the same tensor, cached once.
    keys_are_values = False
    #: ``merge`` wants each row's sum of attention weights where dropout makes it differ from 1.
    needs_row_sums = False
    #: How large the input projections begin; None: as fairseq's, which depends on their widths.
    shared_projection_init: str | None = None

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
        **options: int | float | str | None,
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
        self.key_head_dim = self.value_head_dim = self.head_dim
        #: Of the scores; ``score_scale`` is what of it queries do not bring along.
        self.scaling = self.score_scale = self.head_dim**-0.5
        self.build()

    def build(self) -> None:
        """Make the parameters: of :class:`Attention` itself, a projection a head, as fairseq's."""
        self.project(self.num_heads, kept=self.num_heads)

    def queries(self, x: Tensor) -> Tensor:
        """(T, B, C) -> (B, H, T, dk)."""
        return split_heads(self.q_proj(x), self.query_heads)

    def keys_values(self, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor]:
        """(S, B, kdim), (S, B, vdim) -> (B, Hk, S, dk), (B, Hv, S, dv)."""
        keys = split_heads(self.k_proj(key), self.key_heads)
        return keys, split_heads(self.v_proj(value), self.value_heads)

    def merge(self, heads: Tensor, row_sums: Tensor | None) -> Tensor:
        """(B, H, T, dv) -> (T, B, C); ``row_sums`` (B, H, T, 1) is None where all rows sum to 1."""
        return self.out_proj(join_heads(heads))

    def query_weight(self) -> tuple[Tensor, Tensor | None]:
        """Weight (H d, C) and bias (H d,) of all that `queries` does, where that is linear."""
        return self.q_proj.weight, self.q_proj.bias

    def apart(
        self, q: Tensor, k: Tensor, v: Tensor, padding: Tensor | None
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Queries, keys and values from their projections, in training on a GPU.

        Where the projections are not all that a kind does, they become heads of equal widths, for
        torch's fused kernels.

        Args:
            q: (B, H or 1, T, d).
            k, v: (B, Hk, S, d), (B, Hv, S, d).
            padding: (B, S), true where a key is padding.
        """
        return q, k, v

    @classmethod
    def fold_together(cls, sublayers: Sequence[Any]) -> None:
        """Called before a forward pass in training on a GPU, with all sublayers of this kind in a
        stack: what depends on weights alone may be done for all at once.
        """

    def written_out(self) -> WrittenOut:
        """The heads of this sublayer; they compute the same as it does, dropout aside.

        Raises:
            UserError: the kind has none.
        """
        raise self.not_written_out()

    def not_written_out(self) -> UserError:
        """The error of a sublayer that no ordinary heads equal."""
        return UserError(
            f"{self.kind} attention is not written out as ordinary heads: {self.no_heads}"
        )

    @property
    def cached_values(self) -> int:
        """Numbers cached for one position: Hk dk + Hv dv, or Hk dk where keys are the values."""
        keys = self.key_heads * self.key_head_dim
        return keys if self.keys_are_values else keys + self.value_heads * self.value_head_dim

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
        """The gain with which a projection from inputs of ``width`` starts."""
        if self.shared_projection_init == "head":
            d, n = self.head_dim, self.num_heads
            # As large as the weights of one head in MHA, whose projection is n times as high.
            return PACKED_GAIN * ((width + d) / (width + n * d)) ** 0.5
        packed = self.kdim == self.vdim == self.embed_dim
        if self.shared_projection_init is not None:
            packed = self.shared_projection_init == "packed"
        return PACKED_GAIN if packed else 1.0

    def kept(self, compute: Callable[[], Tensor]) -> Tensor:
        """``compute()``, which depends on weights alone: in generation it is computed once."""
        if self._kept is None:
            return compute()
        name = compute.__name__
        if name not in self._kept:
            self._kept[name] = compute().detach()
        return self._kept[name]

    def linear(
        self, in_features: int, out_features: int, gain: float = 1.0, bias: bool | None = None
    ) -> nn.Linear:
        """A projection, initialised as fairseq's MultiheadAttention does: Xavier uniform.

        ``bias``: whether it has one (default: as the sublayer).
        """
        layer = nn.Linear(in_features, out_features, self.bias if bias is None else bias)
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

    def forward(
        self,
        query: Tensor,
        key: Tensor | None = None,
        value: Tensor | None = None,
        key_padding_mask: Tensor | None = None,
        incremental_state: IncrementalState | None = None,
        need_weights: bool = True,
        static_kv: bool = False,
        attn_mask: Mask | None = None,
        before_softmax: bool = False,
        need_head_weights: bool = False,
    ) -> tuple[Tensor, Tensor | None]:
        """Attend, as fairseq's ``MultiheadAttention`` does.

        Args:
            query: (T, B, C).
            key, value: (S, B', kdim), (S, B', vdim); B' may be B / beam, one row a sentence, whose
                hypotheses are neighbours in ``query``. Both are ignored in self-attention and once
                static keys are cached.
            key_padding_mask: (B', S), true where a key is padding.
            incremental_state: fairseq's store; given, keys and values are appended to the cache.
            need_weights: return the weights' mean over heads, (B, T, S).
            static_kv: keys and values do not change from step to step (cross-attention).
            attn_mask: (T, S), true (or 1 in uint8) or -inf where a query must not look; or a
                ``CausalMask``.
            before_softmax: return masked scores (B * H, T, S) and values (B' * Hv, S, dv) instead.
            need_head_weights: return the weights of each head, (H, B, T, S).

        Returns:
            The output (T, B, C) and the weights or None.
        """
        if isinstance(attn_mask, Tensor) and attn_mask.dtype == torch.uint8:
            attn_mask = attn_mask.bool()
        if self.projects_together and incremental_state is None and trains_on_gpu(query):
            q, k, v = self.apart(
                *self._projected_together(query, query if self.self_attention else key),
                key_padding_mask,
            )
        else:
            k, v, key_padding_mask = self._keys_values_and_padding(
                query, key, value, key_padding_mask, incremental_state, static_kv
            )
            q = self.queries(query)
        if before_softmax:
            scores = raw_scores(q, k, self.score_scale, key_padding_mask, attn_mask)
            return scores.expand(-1, self.num_heads, -1, -1).flatten(0, 1), v.flatten(0, 1)
        dropout = self.dropout if self.training or self.dropout_in_inference else 0.0
        heads, weights, row_sums = attend(
            q,
            k,
            v,
            scale=self.score_scale,
            key_padding_mask=key_padding_mask,
            attn_mask=attn_mask,
            dropout=dropout,
            need_weights=need_weights or need_head_weights,
            need_row_sums=self.needs_row_sums and dropout > 0,
        )
        if weights is not None:
            weights = weights.expand(-1, self.num_heads, -1, -1).transpose(0, 1)  # (H, B, T, S)
            weights = weights if need_head_weights else weights.mean(dim=0)  # (B, T, S)
        return self.merge(heads, row_sums), weights

    def _projected_together(
        self, query: Tensor, memory: Tensor | None
    ) -> tuple[Tensor, Tensor, Tensor]:
        """All projections, by one product for each input.

        On a GPU a small model's training takes as long as its kernels take to start.

        Args:
            query: (T, B, C).
            memory: (S, B, kdim), keys and values; the query itself in self-attention.

        Returns:
            (B, H, T, dk), (B, Hk, S, dk), (B, Hv, S, dv).
        """
        if memory is None:
            raise ValueError("attention was called without keys")
        weights = (
            self.query_weight(),
            *((layer.weight, layer.bias) for layer in (self.k_proj, self.v_proj)),
        )
        if memory is query:
            q, k, v = _products(query, weights)
        else:
            (q,), (k, v) = _products(query, weights[:1]), _products(memory, weights[1:])
        heads = q.size(2) // self.head_dim
        return (
            split_heads(q, heads),
            split_heads(k, self.key_heads),
            split_heads(v, self.value_heads),
        )

    def _keys_values_and_padding(
        self,
        query: Tensor,
        key: Tensor | None,
        value: Tensor | None,
        key_padding_mask: Tensor | None,
        incremental_state: IncrementalState | None,
        static_kv: bool,
    ) -> tuple[Tensor, Tensor, Tensor | None]:
        """The keys (B', Hk, S, dk), values (B', Hv, S, dv) and padding (B', S), cached ones too."""
        cache = self._cache(incremental_state)
        if cache is None or not (static_kv and cache.filled):
            if self.self_attention:
                key = value = query
            if key is None:
                raise ValueError("attention was called without keys and has none cached")
            if self.encoder_decoder_attention or value is None:
                value = key
            k, v = self.keys_values(key, value)
            if cache is None:
                return k, v, key_padding_mask
            cache.append(k, v, key_padding_mask)
        cache.beam = query.size(1) // cache.key.size(0)
        return cache.key, cache.value, cache.padding

    def make_generation_fast_(self, **kwargs: Any) -> None:
        """Called by fairseq before generation: what depends on weights alone is computed once more.

        Attention weights are still dropped with --retain-dropout, as by fairseq's attention: where
        it is one of --retain-dropout-modules, by its name, or none are named.
        """
        self._kept = {}
        modules = kwargs.get("retain_dropout_modules")
        named = modules is None or "MultiheadAttention" in modules
        self.dropout_in_inference = bool(kwargs.get("retain_dropout")) and named

    @torch.no_grad()
    def reorder_incremental_state(
        self, incremental_state: IncrementalState, new_order: Tensor
    ) -> IncrementalState:
        """Row i of the cache becomes what row ``new_order[i]`` was, for hypotheses (new B,)."""
        cache = self._cache(incremental_state)
        if cache is not None and cache.filled:
            cache.reorder(new_order)
        return incremental_state

    def _cache(self, incremental_state: IncrementalState | None) -> KeyValueCache | None:
        """This module's cache, made empty on first use; None outside incremental decoding."""
        if incremental_state is None:
            return None
        buffer = self._get_input_buffer(incremental_state)
        if not isinstance(buffer, KeyValueCache):
            buffer = KeyValueCache(buffer)
            self._set_input_buffer(incremental_state, buffer)
        return buffer

    def _get_input_buffer(
        self, incremental_state: IncrementalState | None
    ) -> dict[str, Tensor | None]:
        """fairseq's name for this module's cached tensors; {} where there are none."""
        state = FairseqIncrementalState.get_incremental_state(self, incremental_state, "attn_state")
        return state or {}

    def _set_input_buffer(
        self, incremental_state: IncrementalState, buffer: dict[str, Tensor | None]
    ) -> Any:
        """fairseq's name for replacing this module's cached tensors."""
        return FairseqIncrementalState.set_incremental_state(
            self, incremental_state, "attn_state", buffer
        )

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


def trains_on_gpu(x: Tensor) -> bool:
    """Whether kernels are to be few: on a GPU, with gradients."""
    return x.is_cuda and torch.is_grad_enabled()


def _products(x: Tensor, weights: Sequence[tuple[Tensor, Tensor | None]]) -> tuple[Tensor, ...]:
    """(T, B, C) by each weight (out, C) and bias (out,): views (T, B, out) of one product."""
    if len(weights) == 1:
        return (linear(x, *weights[0]),)
    biases = [bias for _, bias in weights if bias is not None]
    bias = torch.cat(biases) if biases else None
    product = linear(x, torch.cat([weight for weight, _ in weights]), bias)
    return product.split([len(weight) for weight, _ in weights], dim=2)


def split_heads(x: Tensor, num_heads: int) -> Tensor:
    """(T, B, H * d) -> (B, H, T, d), a view."""
    return x.unflatten(-1, (num_heads, -1)).permute(1, 2, 0, 3)


def join_heads(heads: Tensor) -> Tensor:
    """(B, H, T, d) -> (T, B, H * d)."""
    return heads.permute(2, 0, 1, 3).flatten(2)
