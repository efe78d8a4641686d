"""The base class of every kind: sizes, options, projections, fairseq's interface and the cache."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import linear

from fairseq_mhe.attention.cache import KeyValueCache
from fairseq_mhe.attention.fused import attend
from fairseq_mhe.attention.masks import Mask
from fairseq_mhe.attention.reference import Attended
from fairseq_mhe.attention.written_out import WrittenOut
from fairseq_mhe.common.errors import UserError

#: fairseq's Xavier gain: three (C, C) projections start like the parts of one (3 C, C) matrix.
PACKED_GAIN = 2**-0.5
_HEAD_DIM_HELP = "width of a head (default: embedding dimension / heads)"


@dataclass(frozen=True)
class Option:
    """An option of a kind; ``flag`` is its name on fairseq-train's command line, with underscores.

    ``default``: None if the kind computes it from its sizes. ``choices``: the only allowed values.
    """

    flag: str
    help: str
    type: type = int
    default: Any = None
    choices: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        return self.flag.removeprefix("attention_")

    def value(self, given: Any) -> Any:
        """Return ``given``, or the default for None; raise ValueError if it is not allowed."""
        value = self.default if given is None else given
        if self.choices and value not in self.choices:
            known = ", ".join(self.choices)
            raise ValueError(f"unknown {self.name} {value!r}; choose one of: {known}")
        if self.type is int and value is not None and value < 1:
            raise ValueError(f"{self.name} must be positive, not {value}")
        return value


class Attention(nn.Module):
    """One attention sublayer, called like fairseq's ``MultiheadAttention``.

    Shapes: T query positions, S key positions, B sentences, C ``embed_dim``, H ``num_heads`` (n in
    the kinds' equations), d ``head_dim``, Hk key heads of width dk and Hv value heads of width dv.
    Hk and Hv divide H; head i reads key head i // (H / Hk) and value head i // (H / Hv).

    A kind creates its parameters in :meth:`build`. It overrides :meth:`queries`,
    :meth:`keys_values` or :meth:`merge` if plain projections (:meth:`project`) are not enough.

    Args:
        embed_dim, num_heads: C and H.
        kdim, vdim: width of the key and value inputs (default: ``embed_dim``).
        dropout: probability with which attention weights are dropped in training.
        bias: give every projection a bias. The published parameter counts have none.
        kind: the name in the registry, for error messages.
        options: values of ``OPTIONS`` by name; None is the default.

    Raises ValueError if sizes do not fit together, or the kind does not use an option.
    """

    OPTIONS: tuple[Option, ...] = (Option("attention_head_dim", _HEAD_DIM_HELP),)
    #: Why no ordinary heads (`WrittenOut`) compute the same as this kind; None if some do.
    no_heads: str | None = None
    #: Whether `written_out` multiplies no weights, so that folded checkpoints can be averaged.
    linear_heads = True
    #: Whether training on a GPU calls `queries_keys_values`, not ``queries`` and ``keys_values``.
    projects_together = False
    #: Whether keys and values are the same tensor, cached once.
    keys_are_values = False
    #: How many inputs before its own position a query, key or value reads.
    context = 0
    #: Whether ``merge`` needs the sum of each row of weights, which is not 1 after dropout.
    needs_row_sums = False
    #: Initial scale of the input projections (see `gain`); None: fairseq's, which depends on width.
    shared_projection_init: str | None = None
    #: Results of `compute_once` by the name of their method; None outside generation.
    _computed: dict[str, Tensor] | None = None

    head_dim: int
    out_proj: nn.Linear

    def __init_subclass__(cls, **kwargs: Any) -> None:
        """Turn off the inherited shortcuts that would bypass a hook which this kind overrides."""
        super().__init_subclass__(**kwargs)
        defined = vars(cls)
        if defined.keys().isdisjoint(("forward", "queries", "keys_values", "merge")):
            return
        if "projects_together" not in defined:
            cls.projects_together = False
        if defined.keys().isdisjoint(("written_out", "no_heads")):
            cls.no_heads = "its class overrides a hook, but not written_out()"
        for method in ("written_out", "make_generation_fast_"):
            if method not in defined:
                setattr(cls, method, getattr(Attention, method))

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
        self.num_heads = self.query_heads = self.kv_heads = num_heads
        self.kdim = embed_dim if kdim is None else kdim
        self.vdim = embed_dim if vdim is None else vdim
        if self.keys_are_values and self.kdim != self.vdim:
            sizes = f"kdim {self.kdim} and vdim {self.vdim} must be equal"
            raise ValueError(f"{kind} has one input for keys and values: {sizes}")
        for option in self.OPTIONS:
            setattr(self, option.name, option.value(options.get(option.name)))
        if self.head_dim is None:
            self.head_dim, rest = divmod(embed_dim, num_heads)
            if rest:
                why = f"embed_dim {embed_dim} is not divisible by num_heads {num_heads}"
                raise ValueError(f"{why}: change one of them")
        #: The scale of the scores; ``score_scale`` becomes 1 once `queries` multiplies by it.
        self.scaling = self.score_scale = self.head_dim**-0.5
        self.build()

    # Hooks that a kind overrides.

    def build(self) -> None:
        """Create the parameters; by default one projection for each head, named as in fairseq."""
        self.project(self.num_heads, kv_heads=self.num_heads)

    def queries(self, x: Tensor) -> Tensor:
        """(T, B, C) -> (B, H or 1, T, dk), or (B, H, T, J, dk) if a score reads J keys."""
        return split_heads(self.q_proj(x), self.query_heads)

    def keys_values(self, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor]:
        """(S, B, kdim), (S, B, vdim) -> (B, Hk, S, dk), (B, Hv, S, dv), which are cached."""
        keys = split_heads(self.k_proj(key), self.kv_heads)
        return keys, split_heads(self.v_proj(value), self.kv_heads)

    def merge(self, heads: Tensor, row_sums: Tensor | None) -> Tensor:
        """(B, H, T, dv) -> (T, B, C); ``row_sums`` (B, H, T, 1) is None where all rows sum to 1."""
        return self.out_proj(join_heads(heads))

    def attend(
        self, query: Tensor, key: Tensor, value: Tensor, **options: Any
    ) -> Attended:
        """Attend to what the hooks returned; ``options`` are those of `fused.attend`."""
        return attend(query, key, value, scale=self.score_scale, **options)

    def queries_keys_values(
        self, query: Tensor, memory: Tensor, padding: Tensor | None
    ) -> tuple[Tensor, Tensor, Tensor]:
        """(T, B, C), (S, B, kdim), padding (B, S) -> (B, H, T, d), (B, Hk, S, d), (B, Hv, S, d).

        One matrix product projects each input, because kernel launches limit small models on GPUs.
        """
        q_layer = self.query_layer()
        kv_layers = [(layer.weight, layer.bias) for layer in (self.k_proj, self.v_proj)]
        if memory is query:
            products = _one_product(query, [q_layer, *kv_layers])
        else:
            products = [linear(query, *q_layer), *_one_product(memory, kv_layers)]
        q, k, v = (split_heads(x, x.size(2) // self.head_dim) for x in products)
        return q, k, v

    def query_layer(self) -> tuple[Tensor, Tensor | None]:
        """Return weight (H d, C) and bias (H d,) of the linear layer that `queries` computes."""
        return self.q_proj.weight, self.q_proj.bias

    @classmethod
    def fold_together(cls, sublayers: Sequence[Any]) -> None:
        """Compute what depends only on the weights of ``sublayers``, before a GPU training pass."""

    def written_out(self) -> WrittenOut:
        """Return ordinary heads that compute the same without dropout; UserError if none can."""
        if self.no_heads:
            what = f"{self.kind} attention is not written out as ordinary heads"
            raise UserError(f"{what}: {self.no_heads}; use the model in fairseq as it is")
        return WrittenOut.of_projections(self)

    # Parts for the hooks.

    def project(self, query_heads: int, kv_heads: int) -> None:
        """Create fairseq's four projections for these numbers of query and key/value heads."""
        self.query_heads = query_heads
        self.kv_heads = kv_heads
        self.k_proj = self.input_linear(self.kdim, kv_heads * self.head_dim)
        self.v_proj = self.input_linear(self.vdim, kv_heads * self.head_dim)
        self.q_proj = self.input_linear(self.embed_dim, query_heads * self.head_dim)
        self.out_proj = self.output_linear()

    def linear(
        self, in_features: int, out_features: int, gain: float = 1.0, bias: bool = True
    ) -> nn.Linear:
        """Return a Xavier uniform projection, biased if ``bias`` and ``self.bias`` are true."""
        layer = nn.Linear(in_features, out_features, bias and self.bias)
        nn.init.xavier_uniform_(layer.weight, gain=gain)
        return layer

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

    def output_linear(self) -> nn.Linear:
        """Return W_O, from n d to C numbers; its bias starts at zero, as in fairseq."""
        layer = self.linear(self.num_heads * self.head_dim, self.embed_dim)
        if layer.bias is not None:
            nn.init.zeros_(layer.bias)
        return layer

    def queries_by_one_product(self, x: Tensor, factors: Tensor) -> Tensor:
        """(T, B, C) -> (B, n, T, j * d): the outputs of W_Q times ``factors`` (n, j, d).

        Generation on a GPU takes as long as its kernel launches, so one layer computes both.
        """
        shape = -1, 1, self.head_dim  # of W_Q's output: 1 or n heads, one for all j

        def queries_weight() -> Tensor:  # (n * j * d, C)
            weight = self.q_proj.weight.unflatten(0, shape)  # (1 or n, 1, d, C)
            return (weight * factors.unsqueeze(3)).flatten(0, 2)

        def queries_bias() -> Tensor:  # (n * j * d,)
            bias = self.q_proj.bias.unflatten(0, shape)  # (1 or n, 1, d)
            return (bias * factors).flatten()

        bias = self.compute_once(queries_bias) if self.bias else None
        queries = linear(x, self.compute_once(queries_weight), bias)
        return split_heads(queries, self.num_heads)

    def compute_once(self, compute: Callable[[], Tensor]) -> Tensor:
        """Return ``compute()``, which depends only on weights; generation keeps the result."""
        if self._computed is None:
            return compute()
        name = compute.__name__
        if name not in self._computed:
            self._computed[name] = compute().detach()
        return self._computed[name]

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
        memory = query if key is None else key  # (S, B', kdim)
        value = memory if value is None else value  # (S, B', vdim)
        joint = self.projects_together and value is memory
        on_gpu = query.is_cuda and torch.is_grad_enabled()
        if joint and incremental_state is None and on_gpu:
            q, k, v = self.queries_keys_values(query, memory, key_padding_mask)
        else:
            cache = self._get_input_buffer(incremental_state)
            own = memory is query
            earlier = 0  # inputs of earlier steps that stand before the query
            if self.context:
                inputs = query, memory, value
                query, memory, value = self._in_context(*inputs, key_padding_mask, cache)
                earlier = 0 if cache is None else self.context
            if cache is None or not (static_kv and cache.filled):
                k, v = self.keys_values(memory, value)
                if own and earlier:
                    k, v = k[:, :, earlier:], v[:, :, earlier:]
                if cache is not None:
                    cache.append(k, v, key_padding_mask)
            if cache is not None:
                cache.beam = query.size(1) // cache.key.size(0)
                k, v, key_padding_mask = cache.key, cache.value, cache.padding
            q = self.queries(query)[:, :, earlier:]
        dropout = self.dropout if self.training or self.dropout_in_inference else 0.0
        attended = self.attend(
            q,
            k,
            v,
            key_padding_mask=key_padding_mask,
            attn_mask=attn_mask,
            dropout=dropout,
            need_weights=need_weights or need_head_weights,
            need_row_sums=self.needs_row_sums and dropout > 0,
        )
        weights = attended.weights  # (B, H, T, S)
        if weights is not None:
            weights = weights.expand(-1, self.num_heads, -1, -1).transpose(0, 1)
            if not need_head_weights:  # else (H, B, T, S)
                weights = weights.mean(dim=0)  # (B, T, S)
        return self.merge(attended.heads, attended.row_sums), weights

    def _in_context(
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        padding: Tensor | None,
        cache: KeyValueCache | None,
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Set inputs at padding to 0; in a decoding step put earlier inputs before the new ones."""
        own = key is query
        if padding is not None:
            hidden = padding.bool().t().unsqueeze(2)  # (S, B, 1)
            key = key.masked_fill(hidden, 0.0)
            value = value.masked_fill(hidden, 0.0)
            query = key if own else query
        if cache is not None:
            query = cache.after_earlier(query, self.context)
            key, value = (query, query) if own else (key, value)
        return query, key, value

    def make_generation_fast_(self, **kwargs: Any) -> None:
        """Let `compute_once` keep its results; under --retain-dropout, keep dropping weights."""
        self._computed = {}
        modules = kwargs.get("retain_dropout_modules") or ("MultiheadAttention",)
        retained = bool(kwargs.get("retain_dropout"))
        self.dropout_in_inference = retained and "MultiheadAttention" in modules

    def reorder_incremental_state(self, incremental_state: Any, new_order: Tensor) -> Any:
        """Give the new hypothesis i the cache row of the old one ``new_order[i]``, (new B,)."""
        if self in incremental_state:
            incremental_state[self].reorder(new_order)
        return incremental_state

    def _get_input_buffer(self, state: Any) -> KeyValueCache | None:
        """Return this sublayer's cache, None outside decoding; the method's name is fairseq's."""
        return None if state is None else state.setdefault(self, KeyValueCache())


def _one_product(
    x: Tensor, layers: Sequence[tuple[Tensor, Tensor | None]]
) -> list[Tensor]:
    """Apply ``layers``, (out, C) and (out,), to x (T, B, C) by one product; (T, B, out) each."""
    weights, biases = zip(*layers, strict=True)
    bias = None if biases[0] is None else torch.cat(biases)
    product = linear(x, torch.cat(weights), bias)
    return [*product.split([len(weight) for weight in weights], dim=2)]


def split_heads(x: Tensor, num_heads: int) -> Tensor:
    """(T, B, H * d) -> (B, H, T, d), a view."""
    return x.unflatten(-1, (num_heads, -1)).permute(1, 2, 0, 3)


def join_heads(heads: Tensor) -> Tensor:
    """(B, H, T, d) -> (T, B, H * d)."""
    return heads.permute(2, 0, 1, 3).flatten(2)
