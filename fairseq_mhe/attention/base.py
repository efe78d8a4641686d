"""The shell that fairseq talks to: calling convention, cache, masks, weights, written once."""

from typing import Any

import torch
from fairseq.incremental_decoding_utils import FairseqIncrementalState
from torch import Tensor

from fairseq_mhe.attention.cache import KeyValueCache
from fairseq_mhe.attention.kernel import Mask, attend, raw_scores
from fairseq_mhe.attention.sublayer import Sublayer

IncrementalState = dict[str, dict[str, Tensor | None]]


class Attention(FairseqIncrementalState, Sublayer):
    """One attention sublayer. A kind derives from it and says these things where they are its own:

    - ``queries(x)``: (T, B, C) -> (B, H, T, dk), carrying whatever the kind folds into the query
      (one head where all would be equal), or (B, H, T, j dk) for a key and j - 1 `neighbours`;
    - ``keys_values(key, value)``: (S, B, kdim), (S, B, vdim) -> (B, Hk, S, dk), (B, Hv, S, dv),
      exactly what is cached;
    - ``merge(heads, row_sums)``: (B, H, T, dv) -> (T, B, C), per-head output change, concatenation
      and W_O.

    T query positions, S key positions, B sentences, C, H, d, Hk and Hv as :class:`Sublayer` has
    them, which also says what a kind may say besides. As they stand here, the hooks are those of
    plain projections (see :meth:`project`).
    """

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

    def make_generation_fast_(self, **kwargs: Any) -> None:
        """Called by fairseq once before generation; sets whether weights are still dropped.

        They are with --retain-dropout, as by fairseq's attention: where it is one of
        --retain-dropout-modules, by its name, or none are named.
        """
        modules = kwargs.get("retain_dropout_modules")
        named = modules is None or "MultiheadAttention" in modules
        self.dropout_in_inference = bool(kwargs.get("retain_dropout")) and named

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
            attn_mask: (T, S), true or -inf where a query must not look; or a ``CausalMask``.
            before_softmax: return masked scores (B * H, T, S) and values (B' * Hv, S, dv) instead.
            need_head_weights: return the weights of each head, (H, B, T, S).

        Returns:
            The output (T, B, C) and the weights or None.
        """
        k, v, key_padding_mask = self._keys_values_and_padding(
            query, key, value, key_padding_mask, incremental_state, static_kv
        )
        q = self.queries(query)
        if before_softmax:
            scores = raw_scores(q, k, self.scaling, key_padding_mask, attn_mask)
            return scores.expand(-1, self.num_heads, -1, -1).flatten(0, 1), v.flatten(0, 1)
        dropout = self.dropout if self.training or self.dropout_in_inference else 0.0
        heads, weights, row_sums = attend(
            q,
            k,
            v,
            scale=self.scaling,
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

    @torch.no_grad()
    def reorder_incremental_state(
        self, incremental_state: IncrementalState, new_order: Tensor
    ) -> IncrementalState:
        """Row i of the cache becomes what row ``new_order[i]`` was, for hypotheses (new B,)."""
        cache = self._cache(incremental_state)
        if cache is not None and cache.filled:
            cache.reorder(new_order)
        return incremental_state


def split_heads(x: Tensor, num_heads: int) -> Tensor:
    """(T, B, H * d) -> (B, H, T, d), a view."""
    return x.unflatten(-1, (num_heads, -1)).permute(1, 2, 0, 3)


def join_heads(heads: Tensor) -> Tensor:
    """(B, H, T, d) -> (T, B, H * d)."""
    return heads.permute(2, 0, 1, 3).flatten(2)
