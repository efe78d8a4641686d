"""The shell of every kind of attention: sizes, options, projections, fairseq's calls, the cache."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import linear

from fairseq_mhe.attention.cache import KeyValueCache
from fairseq_mhe.attention.kernel import Mask, attend
from fairseq_mhe.attention.written_out import WrittenOut
from fairseq_mhe.common.errors import UserError

#: fairseq's gain for projections stored apart that would be one matrix of three times the height.
PACKED_GAIN = 2**-0.5
_WIDTH = "width of a head (default: embedding dimension / heads)"
_SCALE = (
    "scale of the shared projections' initial weights: packed (fairseq's gain), xavier "
    "(without it) or head (as large as those of one head in mha) (default: packed for mhe_mul and "
    "mhe_add, head for mhe_conv)"
)


@dataclass(frozen=True)
class Option:
    """One option of a kind, as ``flag`` on fairseq-train's command line, with underscores.

    ``default``: None where the kind works it out from its sizes; ``choices``: its only values.
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
        """``given``, or the default where that is None; ValueError where it cannot be."""
        value = self.default if given is None else given
        if self.choices and value not in self.choices:
            known = ", ".join(self.choices)
            raise ValueError(f"unknown {self.name} {value!r}; choose one of: {known}")
        if self.type is int and value is not None and value < 1:
            raise ValueError(f"{self.name} must be positive, not {value}")
        return value


def shared_projection_init(default: str) -> Option:
    """The option of kinds whose projections serve several heads: how large weights begin."""
    choices = "packed", "xavier", "head"
    return Option("shared_projection_init", _SCALE, str, default, choices)


class Attention(nn.Module):
    """One attention sublayer, called as fairseq's ``MultiheadAttention`` is.

    Shapes: T query positions, S key positions, B sentences, C ``embed_dim``, H ``num_heads``, d
    ``head_dim``, Hk and Hv kept key and value heads of widths dk and dv: what a kind's
    :meth:`keys_values` returns. Hk and Hv divide H, and head i reads kept head i // (H / Hk).

    A kind makes its parameters in :meth:`build`, and overrides :meth:`queries`,
    :meth:`keys_values` and :meth:`merge` where plain projections (see :meth:`project`) do not do.

    Args:
        embed_dim, num_heads: C and H.
        kdim, vdim: width of the key and value inputs (default: ``embed_dim``).
        dropout: probability with which attention weights are dropped in training.
        bias: give every projection a bias. The published parameter counts have none.
        kind: the registry's name, for messages.
        options: values of ``OPTIONS`` by name; None is the default.

    ValueError where sizes do not fit, or the kind would ignore an option.
    """

    OPTIONS: tuple[Option, ...] = (Option("attention_head_dim", _WIDTH),)
    #: Why the kind cannot be written out as ordinary heads, if it cannot.
    no_heads: str | None = None
    #: The weights of its written-out heads are a linear function of its own.
    linear_heads = True
    #: In training on a GPU `projected` takes the place of ``queries`` and ``keys_values``.
    projects_together = False
    #: Keys and values are one and the same tensor, cached once.
    keys_are_values = False
    #: ``merge`` wants each row's sum of attention weights where dropout makes it differ from 1.
    needs_row_sums = False
    #: How large the input projections begin; None: as fairseq's, which depends on their widths.
    shared_projection_init: str | None = None
    #: What depends on weights alone, by the method that computes it; None outside generation.
    _computed: dict[str, Tensor] | None = None

    head_dim: int
    out_proj: nn.Linear

    def __init_subclass__(cls, **words: Any) -> None:
        """A kind that overrides a hook inherits no `projected` or `written_out`, which lack it."""
        super().__init_subclass__(**words)
        own = vars(cls)
        if own.keys().isdisjoint(("forward", "queries", "keys_values", "merge")):
            return
        if "projects_together" not in own:
            cls.projects_together = False
        if "written_out" not in own:
            cls.written_out = Attention.written_out  # type: ignore[method-assign]
            if "no_heads" not in own:
                cls.no_heads = "its class has a hook but no written_out()"

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
            raise ValueError(f"dropout is a probability, not {dropout}")
        self.kind = kind
        self.bias = bias
        self.dropout = dropout
        self.dropout_in_inference = False
        self.embed_dim = embed_dim
        self.num_heads = self.query_heads = self.key_heads = self.value_heads = num_heads
        self.kdim = embed_dim if kdim is None else kdim
        self.vdim = embed_dim if vdim is None else vdim
        if self.keys_are_values and self.kdim != self.vdim:
            sizes = f"kdim {self.kdim} and vdim {self.vdim}"
            raise ValueError(f"{kind} makes keys and values of one input: {sizes} differ")
        for option in self.OPTIONS:
            setattr(self, option.name, option.value(options.get(option.name)))
        if self.head_dim is None:
            self.head_dim, rest = divmod(embed_dim, num_heads)
            if rest:
                why = f"embed_dim {embed_dim} is not divisible by num_heads {num_heads}"
                raise ValueError(f"{why}: change one of them")
        #: The factor of the scores; ``score_scale`` is the part that `queries` leave out.
        self.scaling = self.score_scale = self.head_dim**-0.5
        self.build()

    # What a kind overrides.

    def build(self) -> None:
        """Make the parameters; by default a projection a head, named as fairseq's."""
        self.project(self.num_heads, kept=self.num_heads)

    def queries(self, x: Tensor) -> Tensor:
        """(T, B, C) -> (B, H or 1, T, dk), or (B, H, T, j, dk) to read a key with j - 1 before."""
        return split_heads(self.q_proj(x), self.query_heads)

    def keys_values(self, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor]:
        """(S, B, kdim), (S, B, vdim) -> (B, Hk, S, dk), (B, Hv, S, dv): what is cached."""
        keys = split_heads(self.k_proj(key), self.key_heads)
        return keys, split_heads(self.v_proj(value), self.value_heads)

    def merge(self, heads: Tensor, row_sums: Tensor | None) -> Tensor:
        """(B, H, T, dv) -> (T, B, C); ``row_sums`` (B, H, T, 1) is None where all rows sum to 1."""
        return self.out_proj(join_heads(heads))

    def projected(
        self, query: Tensor, memory: Tensor, padding: Tensor | None
    ) -> tuple[Tensor, Tensor, Tensor]:
        """(T, B, C), (S, B, kdim), padding (B, S) -> (B, H, T, d), (B, Hk, S, d), (B, Hv, S, d).

        By one product an input: on a GPU a small model trains as fast as kernels start.
        """
        of_query = self.query_weight()
        of_memory = [(layer.weight, layer.bias) for layer in (self.k_proj, self.v_proj)]
        if memory is query:
            products = _one_product(query, [of_query, *of_memory])
        else:
            products = [linear(query, *of_query), *_one_product(memory, of_memory)]
        counts = [product.size(2) // self.head_dim for product in products]
        q, k, v = map(split_heads, products, counts)
        return q, k, v

    def query_weight(self) -> tuple[Tensor, Tensor | None]:
        """Weight (H d, C) and bias (H d,) of all that `queries` does, for `projected`."""
        return self.q_proj.weight, self.q_proj.bias

    @classmethod
    def fold_together(cls, sublayers: Sequence[Any]) -> None:
        """Before training on a GPU: do at once what depends on all ``sublayers``' weights alone."""

    def written_out(self) -> WrittenOut:
        """The heads of this sublayer, which compute the same without dropout; UserError if none."""
        if self.no_heads:
            what = f"{self.kind} attention is not written out as ordinary heads"
            raise UserError(f"{what}: {self.no_heads}; use the model in fairseq as it is")
        return WrittenOut.of_projections(self)

    # What kinds are built of.

    def project(self, queries: int, kept: int) -> None:
        """Make fairseq's four projections, of ``queries`` heads and of ``kept`` keys and values."""
        self.query_heads, self.key_heads, self.value_heads = queries, kept, kept
        self.k_proj = self.input_linear(self.kdim, kept * self.head_dim)
        self.v_proj = self.input_linear(self.vdim, kept * self.head_dim)
        self.q_proj = self.input_linear(self.embed_dim, queries * self.head_dim)
        self.out_proj = self.output_linear()

    def linear(
        self,
        in_features: int,
        out_features: int,
        gain: float = 1.0,
        bias: bool | None = None,
    ) -> nn.Linear:
        """A projection, Xavier uniform; ``bias``: whether it has one (default: as the sublayer)."""
        layer = nn.Linear(in_features, out_features, self.bias if bias is None else bias)
        nn.init.xavier_uniform_(layer.weight, gain=gain)
        return layer

    def gain(self, width: int) -> float:
        """The gain with which a projection from inputs of ``width`` begins."""
        init, d, n = self.shared_projection_init, self.head_dim, self.num_heads
        if init == "head":
            # As large as the weights of one head in MHA, whose projection is n times as high.
            return PACKED_GAIN * ((width + d) / (width + n * d)) ** 0.5
        stock = init is None and self.kdim == self.vdim == self.embed_dim
        return PACKED_GAIN if stock or init == "packed" else 1.0

    def input_linear(self, in_features: int, out_features: int) -> nn.Linear:
        """A projection of the input, with the kind's gain."""
        return self.linear(in_features, out_features, self.gain(in_features))

    def output_linear(self) -> nn.Linear:
        """W_O, from all heads to C; its bias starts at zero, as fairseq's."""
        layer = self.linear(self.num_heads * self.head_dim, self.embed_dim)
        if layer.bias is not None:
            nn.init.zeros_(layer.bias)
        return layer

    def queries_at_once(self, x: Tensor) -> Tensor:
        """`queries` in generation on a GPU, where a step takes as long as its kernels start: one
        product by ``heads_weight()`` and ``heads_bias()`` of the kind.
        """
        kind: Any = self
        weight = self.once(kind.heads_weight)
        bias = self.once(kind.heads_bias) if self.bias else None
        queries = linear(x, weight, bias)
        return split_heads(queries, self.num_heads)

    def once(self, compute: Callable[[], Tensor]) -> Tensor:
        """``compute()``, which depends on weights alone: in generation it is computed once."""
        if self._computed is None:
            return compute()
        name = compute.__name__
        if name not in self._computed:
            self._computed[name] = compute().detach()
        return self._computed[name]

    @property
    @torch.no_grad()
    def cached_values(self) -> int:
        """Numbers cached for one position, counted in what `keys_values` returns for one."""
        weight = next(self.parameters())
        inputs = [weight.new_zeros(1, 1, width) for width in (self.kdim, self.vdim)]
        keys, values = self.keys_values(*inputs)  # (1, Hk, 1, dk), (1, Hv, 1, dv)
        return keys.numel() + (0 if values is keys else values.numel())

    # What fairseq calls.

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
        """Attend, as fairseq's ``MultiheadAttention`` does; the output (T, B, C) and the weights.

        Args:
            query: (T, B, C).
            key, value: (S, B', kdim), (S, B', vdim); by default the query and the key. B' may be
                B / beam, where a sentence's hypotheses are neighbours.
            key_padding_mask: (B', S), true where a key is padding.
            incremental_state: fairseq's store; given, keys and values are appended to the cache.
            need_weights: return the weights' mean over heads, (B, T, S); else None.
            static_kv: keys and values do not change from step to step (cross-attention).
            attn_mask: (T, S), true or -inf where a query must not look; or a ``CausalMask``.
            need_head_weights: return the weights of each head, (H, B, T, S).
        """
        memory = query if key is None else key  # (S, B', kdim)
        if self.projects_together and incremental_state is None and trains_on_gpu(query):
            q, k, v = self.projected(query, memory, key_padding_mask)
        else:
            cache = self._get_input_buffer(incremental_state)
            if cache is None or not (static_kv and cache.filled):
                k, v = self.keys_values(memory, memory if value is None else value)
                if cache is not None:
                    cache.append(k, v, key_padding_mask)
            if cache is not None:
                cache.beam = query.size(1) // cache.key.size(0)
                k, v, key_padding_mask = cache.key, cache.value, cache.padding
            q = self.queries(query)
        dropout = self.dropout if self.training or self.dropout_in_inference else 0.0
        masks = key_padding_mask, attn_mask
        seen = need_weights or need_head_weights
        summed = self.needs_row_sums and dropout > 0
        result = attend(q, k, v, self.score_scale, *masks, dropout, seen, summed)
        heads, weights, row_sums = result  # (B, H, T, dv), (B, H, T, S), (B, H, T, 1)
        if weights is not None:
            each = weights.expand(-1, self.num_heads, -1, -1)  # (B, H, T, S)
            weights = each.transpose(0, 1) if need_head_weights else each.mean(dim=1)
        return self.merge(heads, row_sums), weights

    def make_generation_fast_(self, **kwargs: Any) -> None:
        """Called by fairseq before generation: what depends on weights alone is computed once more,
        and weights are still dropped with --retain-dropout, as by fairseq's attention.
        """
        self._computed = {}
        modules = kwargs.get("retain_dropout_modules") or ("MultiheadAttention",)
        retained = bool(kwargs.get("retain_dropout"))
        self.dropout_in_inference = retained and "MultiheadAttention" in modules

    def reorder_incremental_state(self, incremental_state: Any, new_order: Tensor) -> Any:
        """Row i of the cache becomes what row ``new_order[i]`` was, for hypotheses (new B,)."""
        cache = self._get_input_buffer(incremental_state)
        if cache is not None and cache.filled:
            cache.reorder(new_order)
        return incremental_state

    def _get_input_buffer(self, state: Any) -> KeyValueCache | None:
        """This sublayer's cache (fairseq's name for it); None outside incremental decoding."""
        return None if state is None else state.setdefault(self, KeyValueCache())


def trains_on_gpu(x: Tensor) -> bool:
    """Whether kernels are to be few: on a GPU, with gradients."""
    return x.is_cuda and torch.is_grad_enabled()


def _one_product(
    x: Tensor, layers: Sequence[tuple[Tensor, Tensor | None]]
) -> list[Tensor]:
    """(T, B, C) by each weight (out, C) and bias (out,): views (T, B, out) of one product."""
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
