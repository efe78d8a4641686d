"""CUDA graphs for beam search: one call starts all kernels of a decoding step.

The host needs ten times as long to start a step's kernels as a GPU to compute them (docs/gpu.md).
A graph reads and writes fixed addresses. So a step has room for more sentences and for later
positions, which count as padding until they are used.
"""

import os
import weakref
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

from fairseq_mhe.attention.cache import KeyValueCache, sentence_order
from fairseq_mhe.models.recording import Recordings, Shape, round_up

#: A step has room for at least these multiples of sentences, source and target tokens.
_SENTENCE_MULTIPLE, _SOURCE_MULTIPLE, _TARGET_MULTIPLE = 8, 16, 32
#: Environment variable; 0 turns these graphs off.
_SWITCH = "FAIRSEQ_MHE_CUDA_GRAPHS"
_KEPT_STEPS = 16  # each holds memory for the caches of a batch
#: Key of a search's `_Lease` in its incremental state; None there: the search has no graph.
LEASE = "lease of a decoding step"

Caches = Mapping[Any, KeyValueCache]  # by sublayer


def generates_by_graphs(decoder: Any, tokens: Tensor) -> bool:
    """Return whether graphs may run a search, unless FAIRSEQ_MHE_CUDA_GRAPHS=0 forbids it."""
    on_gpu = tokens.is_cuda and os.environ.get(_SWITCH) != "0"
    # fairseq's adaptive embedding and its embedding of characters wait for the GPU.
    table = type(decoder.embed_tokens) is nn.Embedding
    fits = table and decoder.embed_positions is not None
    searches = not (decoder.training or decoder.need_attn or torch.is_grad_enabled())
    return on_gpu and fits and searches


class DecodingGraphs(Recordings):
    """Runs a decoder by graphs, from the second step of a search on."""

    advice = f"set {_SWITCH}=0"

    def __init__(self, decoder: Any) -> None:
        super().__init__(decoder)
        self.self_attention = [layer.self_attn for layer in decoder.layers]
        #: The first one is self-attention, the last one cross-attention, if there is any.
        self.sublayers = decoder.sublayers_with_cache

    def forget(self) -> None:
        """Drop all recordings; searches that use one finish with it."""
        super().forget()
        self.steps: list[Step] = []  # the one used last is the last

    # Searches in inference mode and outside of it write to the same tensors.
    @torch.inference_mode(False)
    @torch.no_grad()
    def __call__(
        self, tokens: Tensor, encoder_out: Any, state: dict[Any, Any]
    ) -> Tensor | None:
        """tokens (N, T) -> logits (N, 1, V) of the last ones; None if no graph may run this step:
        it is the first, targets are padded on the left, the GPU's memory is half full, or a kind of
        attention caches more than keys and values.
        """
        length = tokens.size(1)
        if state.get(LEASE) and length > state[LEASE].step.length:
            leave_graphs(state, length)
            del state[LEASE]  # for one with more room
        if LEASE not in state:
            caches = {own: state[own] for own in self.sublayers if own in state}
            if not caches:
                return None
            state[LEASE] = self._lease(caches, length, encoder_out)
            if state[LEASE]:
                for sublayer in caches:  # the step has copied them
                    del state[sublayer]
        lease = state[LEASE]
        return None if lease is None else lease.step(tokens)

    def _lease(self, caches: Caches, length: int, encoder_out: Any) -> "_Lease | None":
        """Return a step with room for ``length`` positions that holds what is cached so far."""
        if self.snapshot.changed() or not self.recorder.half_is_free():
            self.forget()  # without old graphs there may be memory for new ones
        first, last = caches[self.sublayers[0]], caches[self.sublayers[-1]]
        fits = first.padding is None and _all_plain(caches)
        if not fits or not self.recorder.half_is_free():
            return None
        has_source = self.sublayers[-1] not in self.self_attention
        sentences = len(last.key)
        shape = (
            round_up(sentences, _SENTENCE_MULTIPLE),
            len(first.key) // sentences,
            round_up(last.key.size(2), _SOURCE_MULTIPLE) if has_source else 0,
            round_up(length, _TARGET_MULTIPLE),
        )
        step = self._free_step(shape, caches, encoder_out)
        if step is None:
            return None
        step.load(caches, sentences, positions=length - 1)
        lease = _Lease(step)
        step.lease = weakref.ref(lease)
        return lease

    def _free_step(self, shape: Shape, like: Caches, encoder_out: Any) -> "Step | None":
        """Return a step of this shape that no search uses; record one if there is none."""
        step: Step | None = None
        for kept in self.steps:
            if kept.shape == shape and kept.lease() is None:
                step = kept
        if step is None:
            step = self.try_to_record(shape, lambda: Step(self, like, encoder_out, shape))
            if step is None:
                return None
        else:
            self.steps.remove(step)
        self.steps.append(step)
        del self.steps[:-_KEPT_STEPS]
        return step


def leave_graphs(state: dict[Any, Any], length: int) -> None:
    """Let a search go on without graphs from its ``length``-th position on."""
    if lease := state.get(LEASE):
        state |= lease.step.plain_caches(length - 1)
        state[LEASE] = None


class _Lease:
    """Exists as long as a search uses a step; no other search may use it meanwhile."""

    def __init__(self, step: "Step") -> None:
        self.step = step


def _all_plain(caches: Caches) -> bool:
    """Return whether the caches hold nothing but what `FixedCache` can hold."""
    known = {"key", "value", "padding", "filled", "beam", "earlier"}
    for cache in caches.values():
        if type(cache) is not KeyValueCache or not vars(cache).keys() <= known:
            return False
    return True


class FixedCache(KeyValueCache):
    """A cache with room for all positions of ``padding`` (B, S); ``place`` (1,) is the next one.

    ``hypotheses``: how many of them it has room for.
    """

    filled = True

    def __init__(
        self, like: KeyValueCache, padding: Tensor, place: Tensor, hypotheses: int
    ) -> None:
        self.padding = padding
        self.place = place
        buffers = []
        for tensor in tensors(like):
            _, heads, _, width = tensor.shape
            buffers.append(tensor.new_zeros(len(padding), heads, padding.size(1), width))
        self.key, self.value = buffers[0], buffers[-1]
        if like.earlier is not None:
            count, _, width = like.earlier.shape
            self.earlier = like.earlier.new_zeros(count, hypotheses, width)

    def append(self, key: Tensor, value: Tensor, padding: Tensor | None) -> None:
        """Write key (B, Hk, 1, dk) and value (B, Hv, 1, dv) at the next position."""
        for buffer, tensor in zip(tensors(self), (key, value), strict=False):
            buffer.index_copy_(2, self.place, tensor)

    def after_earlier(self, x: Tensor, count: int) -> Tensor:
        """Do as the method of `KeyValueCache`, but keep the earlier inputs where they are."""
        buffer: Any = self.earlier
        x = super().after_earlier(x, count)
        self.earlier = buffer.copy_(self.earlier)
        return x

    def load(self, cache: KeyValueCache) -> None:
        """Copy what ``cache`` holds; the rest becomes 0, so that it stays finite."""
        if self.earlier is not None and cache.earlier is not None:
            self.earlier.zero_()
            self.earlier[:, : cache.earlier.size(1)] = cache.earlier
        for buffer, tensor in zip(tensors(self), tensors(cache), strict=True):
            buffer.zero_()
            rows = min(len(buffer), len(tensor))
            buffer[:rows, :, : tensor.size(2)] = tensor[:rows]


def tensors(cache: KeyValueCache) -> list[Tensor]:
    """Return the keys (B, Hk, S, dk) and values (B, Hv, S, dv), one tensor if both are one."""
    return [cache.key] if cache.value is cache.key else [cache.key, cache.value]


class Step:
    """A decoding step with its graph.

    Its ``shape`` is the room for sentences (B), hypotheses of each (beam), source tokens (S) and
    target tokens (T). Rows without a sentence read one key, so that they stay finite. The recording
    reads only the sizes of ``encoder_out``; its keys and values are cached.
    """

    logits: Tensor  # (B * beam, 1, V)

    def __init__(
        self, owner: DecodingGraphs, like: Caches, encoder_out: Any, shape: Shape
    ) -> None:
        self.owner = owner
        self.shape = shape
        sentences, beam, source, length = shape
        self.beam = beam
        self.length = length
        self.sentences = sentences  # that the search still has
        self.lease: Any = lambda: None  # or a weak reference to the search's lease
        rows = sentences * beam
        example = next(iter(like.values())).key
        with example.device:
            self.tokens = torch.zeros(rows, 1, dtype=torch.long)
            self.place = torch.zeros(1, dtype=torch.long)  # of these tokens in the target
            self.same_order = torch.arange(rows)
            self.order = torch.arange(rows)  # each row's row in the last step
            self.hidden = torch.zeros(rows, length, dtype=torch.bool)
            self.source_padding = torch.zeros(sentences, source, dtype=torch.bool)
        self.position = self._position(self.tokens).clone()  # (1, 1, C)
        self.caches: dict[Any, FixedCache] = {}
        self.source_tensors = [self.source_padding]  # have a row for each sentence
        for sublayer, cache in like.items():
            own = sublayer in owner.self_attention
            padding = self.hidden if own else self.source_padding
            self.caches[sublayer] = fixed = FixedCache(cache, padding, self.place, rows)
            self.source_tensors += [] if own else tensors(fixed)
        self.replay = owner.recorder.record(lambda: self._compute(encoder_out))

    def load(self, caches: Caches, sentences: int, positions: int) -> None:
        """Start from so many sentences and target positions in ``caches``."""
        self.sentences = sentences
        self.hidden.fill_(True)
        self.hidden[:, :positions] = False
        self.order.copy_(self.same_order)
        for sublayer, cache in caches.items():
            self.caches[sublayer].load(cache)
        if self.source_padding.numel():
            last = caches[self.owner.sublayers[-1]]
            padding = False if last.padding is None else last.padding[:sentences]
            self.source_padding.fill_(True)
            self.source_padding[:sentences, : last.key.size(2)] = padding
            self.source_padding[sentences:, 0] = False

    def plain_caches(self, positions: int) -> Caches:
        """Return the caches of the search's sentences as they are without graphs."""
        plain = {}
        order = self.order[: self.sentences * self.beam]
        for sublayer, cache in self.caches.items():
            copy = plain[sublayer] = KeyValueCache()
            if sublayer in self.owner.self_attention:
                parts = [tensor[order, :, :positions] for tensor in tensors(cache)]
                padding = None
            else:
                parts = [tensor[: self.sentences].clone() for tensor in tensors(cache)]
                padding = self.source_padding[: self.sentences].clone()
                copy.beam = self.beam
            copy.append(parts[0], parts[-1], padding)
            if cache.earlier is not None:
                copy.earlier = cache.earlier[:, order]
        return plain

    def reorder(self, new_order: Tensor) -> None:
        """Let the next step go on from rows ``new_order`` (N,) of the last one."""
        self.order[: len(new_order)] = self.order[new_order]
        rows, _ = sentence_order(new_order, self.sentences, self.beam)
        if rows is None:
            return
        self.sentences = len(rows)
        for tensor in self.source_tensors:
            tensor[: len(rows)] = tensor.index_select(0, rows)

    def __call__(self, tokens: Tensor) -> Tensor:
        """tokens (N, T) -> logits (N, 1, V)."""
        rows, length = tokens.shape
        self.tokens[:rows] = tokens[:, -1:]
        self.place.fill_(length - 1)
        self.position.copy_(self._position(tokens))
        self.replay()
        return self.logits[:rows].clone()  # the next step overwrites them

    def _position(self, tokens: Tensor) -> Tensor:
        """Return the embedded position (1, 1, C) of the last of tokens (N, T)."""
        embed = self.owner.module.embed_positions
        position: Tensor = embed(tokens, incremental_state={})[:1]
        return position

    def _compute(self, encoder_out: Any) -> None:
        """Compute the logits of all rows; the lines run only while a graph is recorded."""
        decoder = self.owner.module
        for sublayer in self.owner.self_attention:
            for tensor in tensors(self.caches[sublayer]):
                tensor.copy_(tensor.index_select(0, self.order))
        for cache in self.caches.values():
            if cache.earlier is not None:
                cache.earlier.copy_(cache.earlier.index_select(1, self.order))
        self.order.copy_(self.same_order)
        self.hidden.index_fill_(1, self.place, False)
        features, _ = decoder.extract_features(
            self.tokens,
            encoder_out,
            self.caches,
            positions=self.position,
            right_padded=True,  # the caches know which positions are padding
        )
        self.logits = decoder.output_layer(features)
