"""The base class of every kind: sizes, projections, fairseq's interface and the cache."""

import copy
from typing import Any

import torch
from torch import Tensor, nn

from fairseq_mhe.attention.cache import KeyValueCache
from fairseq_mhe.attention.few_shapes import Linear
from fairseq_mhe.attention.fused import Attended, attend
from fairseq_mhe.attention.masks import Mask
from fairseq_mhe.attention.options import HEAD_DIM, Option
from fairseq_mhe.attention.plain_heads import PlainHeads
from fairseq_mhe.common.errors import UserError

#: fairseq's Xavier gain: three (C, C) projections start like the parts of one (3 C, C) matrix.
PACKED_GAIN = 2**-0.5


class Attention(nn.Module):
    """One attention sublayer, called like fairseq's ``MultiheadAttention``.

    Shapes: T query positions, S key positions, B sentences, C ``embed_dim``, H ``num_heads`` (n in
    the kinds' equations), d ``head_dim``, Hk key heads of width dk and Hv value heads of width dv.
    Hk and Hv divide H; head i reads key head i // (H / Hk) and value head i // (H / Hv).

    A kind creates its parameters in :meth:`build`. It overrides :meth:`queries`,
    :meth:`keys_values` or :meth:`merge` if plain projections are not enough.

    Args:
        embed_dim, num_heads: C and H.
        kdim, vdim: width of the key and value inputs (default: ``embed_dim``).
        dropout: probability with which attention weights are dropped in training.
        bias: give every projection a bias. The published parameter counts have none.
        kind: the name in the registry, for error messages.
        options: values of ``OPTIONS`` by name; None is the default.

    Raises ValueError if sizes do not fit together, or the kind does not use an option.
    """

    OPTIONS: tuple[Option, ...] = (HEAD_DIM,)
    #: Reason why plain heads cannot compute this kind, or None.
    not_foldable_because: str | None = None
    #: True if plain_heads is linear in the parameters: then the mean of folds is the fold of the
    #: mean.
    linear_heads = True
    #: Whether all heads share one query; whether they share one key and one value.
    one_query = False
    one_key_value = False
    #: Whether keys and values are the same tensor, cached once.
    keys_are_values = False
    #: Initial scale of the input projections (see `gain`); None: fairseq's, which depends on width.
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
        kind: str = "",
        **options: int | float | str | None,
    ) -> None:
        super().__init__()
        known = {option.name for option in self.OPTIONS}
        if unused := ", ".join(sorted(set(options) - known)):
            raise ValueError(f"attention {kind!r} does not use {unused}: leave it out")
        if embed_dim < 1 or num_heads < 1:
            sizes = f"embed_dim {embed_dim} and num_heads {num_heads}"
            raise ValueError(f"{sizes} must both be positive")
        if not 0 <= dropout <= 1:
            raise ValueError(f"dropout must be from 0 to 1, not {dropout}")
        self.kind = kind
        self.bias = bias
        self.dropout = dropout
        self.dropout_in_inference = False
        self.embed_dim = embed_dim
        self.num_heads = num_heads
        self.query_heads = 1 if self.one_query else num_heads
        self.kv_heads = 1 if self.one_key_value else num_heads
        self.kdim = embed_dim if kdim is None else kdim
        self.vdim = embed_dim if vdim is None else vdim
        if self.keys_are_values and self.kdim != self.vdim:
            sizes = f"kdim {self.kdim} and vdim {self.vdim} must be equal"
            raise ValueError(f"{kind} has one input for keys and values: {sizes}")
        for option in self.OPTIONS:
            setattr(self, option.name, option.value(options.get(option.name), self))
        if num_heads % self.kv_heads:
            sizes = f"kv_heads {self.kv_heads} does not divide num_heads {num_heads}"
            raise ValueError(f"{sizes}: choose a divisor")
        self.all_heads_dim = num_heads * self.head_dim  # n d
        self.scaling = self.head_dim**-0.5
        self.build()

    # Hooks that a kind overrides.

    def build(self) -> None:
        """Create the parameters; by default plain projections, named as in fairseq."""
        self.k_proj = self.input_linear(self.kdim, self.kv_heads * self.head_dim)
        self.v_proj = self.input_linear(self.vdim, self.kv_heads * self.head_dim)
        self.q_proj = self.input_linear(self.embed_dim, self.query_heads * self.head_dim)
        self.out_proj = self.output_linear()

    def queries(self, x: Tensor) -> Tensor:
        """(T, B, C) -> (B, H or 1, T, dk)."""
        return split_heads(self.q_proj(x), self.query_heads)

    def keys_values(self, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor]:
        """(S, B, kdim), (S, B, vdim) -> (B, Hk, S, dk), (B, Hv, S, dv), which are cached."""
        keys = split_heads(self.k_proj(key), self.kv_heads)
        return keys, split_heads(self.v_proj(value), self.kv_heads)

    def attend(
        self, query: Tensor, key: Tensor, value: Tensor, **options: Any
    ) -> Attended:
        """Return softmax(Q K^T * scale) V; ``options`` and shapes: see `fused.attend`.

        A kind overrides this if scores or averages are no plain products with what it caches.
        """
        return attend(query, key, value, scale=self.scaling, **options)

    def merge(self, heads: Tensor) -> Tensor:
        """(B, H, T, dv) -> (T, B, C)."""
        return self.out_proj(join_heads(heads))

    def plain_heads(self) -> PlainHeads:
        """Return plain heads that compute the same without dropout.

        `folded` calls this on a copy in float64, without gradients, if the class itself defines it.
        """
        return PlainHeads.of_projections(self)

    # Parts for the hooks.

    def linear(
        self, in_features: int, out_features: int, gain: float = 1.0, bias: bool = True
    ) -> nn.Linear:
        """Return a Xavier uniform projection, biased if ``bias`` and ``self.bias`` are true."""
        layer = nn.Linear(in_features, out_features, bias and self.bias)
        nn.init.xavier_uniform_(layer.weight, gain=gain)
        return layer

    def normal(self, *shape: int, std: float) -> nn.Parameter:
        """Return a parameter of this shape, with initial values N(0, std)."""
        parameter = nn.Parameter(torch.empty(shape))
        if not parameter.is_meta:  # else torch loads its compiler, for a second
            nn.init.normal_(parameter, std=std)
        return parameter

    def gain(self, width: int) -> float:
        """Return the Xavier gain of a projection whose inputs are ``width`` numbers."""
        init, d, n = self.shared_projection_init, self.head_dim, self.num_heads
        if init == "head":
            # Xavier's range of this (d, width) matrix becomes that of MHA's (n d, width) matrix.
            return PACKED_GAIN * ((width + d) / (width + n * d)) ** 0.5
        fairseq_packs = init is None and self.kdim == self.vdim == self.embed_dim
        return PACKED_GAIN if fairseq_packs or init == "packed" else 1.0

    def input_linear(self, in_features: int, out_features: int) -> nn.Linear:
        """Return a projection of the input, initialised with the kind's gain."""
        return self.linear(in_features, out_features, self.gain(in_features))

    def output_linear(
        self, in_features: int | None = None, gain: float = 1.0
    ) -> nn.Linear:
        """Return W_O, from n d or ``in_features`` to C numbers; its bias starts at 0."""
        layer = self.linear(in_features or self.all_heads_dim, self.embed_dim, gain)
        if layer.bias is not None:
            nn.init.zeros_(layer.bias)
        return layer

    @property
    @torch.no_grad()
    def cached_values(self) -> int:
        """The count of numbers cached for one position, taken from what `keys_values` returns."""
        weight = next(self.parameters())
        inputs = [weight.new_zeros(1, 1, width) for width in (self.kdim, self.vdim)]
        keys, values = self.keys_values(*inputs)  # (1, Hk, 1, dk), (1, Hv, 1, dv)
        return keys.numel() + (0 if values is keys else values.numel())

    # Methods that fairseq calls.

    def forward(
        self,
        query: Tensor,
        key: Tensor | None = None,
        value: Tensor | None = None,
        key_padding_mask: Tensor | None = None,
        incremental_state: Any = None,
        need_weights: bool = True,
        static_kv: bool = False,
        attn_mask: Mask | None = None,
        need_head_weights: bool = False,
    ) -> tuple[Tensor, Tensor | None]:
        """Attend like fairseq's ``MultiheadAttention``; return the output (T, B, C) and weights.

        Args:
            query: (T, B, C).
            key, value: (S, B', kdim), (S, B', vdim); by default the query and the key. In a search
                B' may be B / beam: the hypotheses of a sentence, adjacent in the query, share keys.
            key_padding_mask: (B', S), true where a key is padding.
            incremental_state: fairseq's decoding state, which holds the cache; None: no decoding.
            need_weights: return the mean of the weights over heads, (B, T, S); else None.
            static_kv: keys and values are the same in every step (cross-attention).
            attn_mask: (T, S), true or -inf where a query must not look; or a ``CausalMask``.
            need_head_weights: return the weights of each head, (H, B, T, S).
        """
        key = query if key is None else key  # (S, B', kdim)
        value = key if value is None else value  # (S, B', vdim)
        cache = self._get_input_buffer(incremental_state)
        if static_kv and cache is not None and cache.filled:
            key = value = None  # the cache holds what they project to
        q, k, v = self.project_inputs(
            query, key, value, padding=key_padding_mask, cache=cache
        )
        if cache is not None:
            if key is not None:
                cache.append(k, v, key_padding_mask)
            cache.beam = query.size(1) // cache.key.size(0)
            k, v, key_padding_mask = cache.key, cache.value, cache.padding
        dropout = self.dropout if self.training or self.dropout_in_inference else 0.0
        attended = self.attend(
            q,
            k,
            v,
            key_padding_mask=key_padding_mask,
            attn_mask=attn_mask,
            dropout=dropout,
            need_weights=need_weights or need_head_weights,
        )
        output = self.merge(attended.heads)
        if attended.weights is None:
            return output, None
        by_head = attended.weights.expand(-1, self.num_heads, -1, -1).transpose(0, 1)
        return output, by_head if need_head_weights else by_head.mean(dim=0)

    def project_inputs(
        self, query: Tensor, key: Tensor | None, value: Tensor | None, **memory: Any
    ) -> tuple[Tensor, Any, Any]:
        """Return queries, and keys and values, or None for both without ``key`` and ``value``.

        ``memory`` is for kinds that read several positions: ``padding`` (B', S) of the key, and
        the ``cache`` of earlier decoding steps. Each may be None.
        """
        queries = self.queries(query)
        if key is None or value is None:
            return queries, None, None
        keys, values = self.keys_values(key, value)
        return queries, keys, values

    def folded(self) -> PlainHeads:
        """Return `plain_heads` in float64; UserError if no plain heads compute the same."""
        if reason := self.why_not_foldable():
            what = f"{self.kind} attention is not written as plain heads"
            raise UserError(f"{what}: {reason}; use the model in fairseq as it is")
        return copy.deepcopy(self).double().requires_grad_(False).plain_heads()

    def why_not_foldable(self) -> str | None:
        """Return why no plain heads are known to compute the same, or None."""
        if self.not_foldable_because:
            return self.not_foldable_because
        if "plain_heads" not in vars(type(self)):  # an inherited one knows no new hooks
            return f"{type(self).__name__} does not define plain_heads"
        for name, part in self.named_children():
            if type(part).forward not in (nn.Linear.forward, Linear.forward):
                return f"its {name} is a {type(part).__name__}, no nn.Linear"
        return None

    def make_generation_fast_(self, **kwargs: Any) -> None:
        """Keep dropping weights under --retain-dropout; fairseq calls this before generation."""
        modules = kwargs.get("retain_dropout_modules") or ("MultiheadAttention",)
        retained = bool(kwargs.get("retain_dropout"))
        self.dropout_in_inference = retained and "MultiheadAttention" in modules

    def extra_repr(self) -> str:
        """Return what `print` shows of the sublayer beside its projections."""
        memory = self.kdim if self.kdim == self.vdim else f"{self.kdim}/{self.vdim}"
        sizes = f"heads={self.num_heads}, head_dim={self.head_dim}"
        return f"{self.kind}, {sizes}, embed_dim={self.embed_dim}, memory_dim={memory}"

    def reorder_incremental_state(self, incremental_state: Any, new_order: Tensor) -> Any:
        """Give the new hypothesis i the cache row of the old one ``new_order[i]``, (new B,)."""
        if self in incremental_state:
            incremental_state[self].reorder(new_order)
        return incremental_state

    def _get_input_buffer(self, state: Any) -> KeyValueCache | None:
        """Return this sublayer's cache, None outside decoding; the method's name is fairseq's."""
        return None if state is None else state.setdefault(self, KeyValueCache())


def split_heads(x: Tensor, num_heads: int) -> Tensor:
    """(T, B, H * d) -> (B, H, T, d), a view."""
    return x.unflatten(-1, (num_heads, -1)).permute(1, 2, 0, 3)


def join_heads(heads: Tensor) -> Tensor:
    """(B, H, T, d) -> (T, B, H * d)."""
    return heads.permute(2, 0, 1, 3).flatten(2)
