"""CUDA graphs for beam search: one call starts all kernels of a decoding step.

The host needs ten times as long to start a step's kernels as a GPU to compute them (docs/gpu.md).
A graph reads and writes fixed addresses. So a step has room for more sentences and for later
positions, which count as padding until they are used.
"""

from typing import Any

import torch
from torch import Tensor

from fairseq_mhe.attention.cache import KeyValueCache, sentence_order
from fairseq_mhe.models import graphs
from fairseq_mhe.models.graphs import round_up

#: A step has room for at least these multiples of sentences, source and target tokens.
_SENTENCE_MULTIPLE, _SOURCE_MULTIPLE, _TARGET_MULTIPLE = 8, 16, 32
_KEPT_STEPS = 16  # each holds memory for the caches of a batch
STEP = "decoding step"  # its key in the incremental state of a search

Caches = dict[Any, KeyValueCache]  # by sublayer


def half_is_free() -> bool:
    """Return whether half of the GPU's memory is free: steps need more memory than caches."""
    free, total = torch.cuda.mem_get_info()
    reserved = torch.cuda.memory_reserved() - torch.cuda.memory_allocated()
    return free + reserved > total / 2


class DecodingGraphs:
    """Runs a ``decoder`` by graphs, from the second step of a search on."""

    def __init__(self, decoder: Any) -> None:
        self.decoder = decoder
        self.record = graphs.graph_recorder()
        self.steps: dict[tuple[int, ...], Step] = {}  # the one used last is the last
        self.self_attention = [layer.self_attn for layer in decoder.layers]
        #: The first one is self-attention, the last one cross-attention, if there is any.
        self.sublayers = decoder.sublayers_with_cache

    # Searches in inference mode and outside of it write to the same tensors.
    @torch.inference_mode(False)
    @torch.no_grad()
    def __call__(
        self, tokens: Tensor, encoder_out: Any, state: dict[Any, Any]
    ) -> Tensor | None:
        """tokens (N, T) -> logits (N, 1, V) of the last ones; None if no graph may run this step:
        it is the first, targets are padded on the left, or the GPU's memory is half full.
        """
        step = state.get(STEP)
        if step is None or tokens.size(1) > step.length:
            step = self._next_step(tokens.size(1), step, state)
            if step is None:
                return None
            state |= {STEP: step, **step.caches}
        return step(tokens, encoder_out)

    def _next_step(
        self, length: int, previous: "Step | None", state: dict[Any, Any]
    ) -> "Step | None":
        """Return a step with room for ``length`` positions, which holds what is cached so far."""
        caches = {
            sublayer: state[sublayer] for sublayer in self.sublayers if sublayer in state
        }
        if not caches:
            return None
        first, last = caches[self.sublayers[0]], caches[self.sublayers[-1]]
        if not half_is_free():
            self.steps.clear()
        if previous is None and (first.padding is not None or not half_is_free()):
            return None
        sentences = len(last.key) if previous is None else previous.sentences
        is_cross = self.sublayers[-1] not in self.self_attention
        source = last.key.size(2) if is_cross else 0
        shape = (
            round_up(sentences, _SENTENCE_MULTIPLE),
            len(first.key) // len(last.key),
            round_up(source, _SOURCE_MULTIPLE),
            round_up(length, _TARGET_MULTIPLE),
        )
        step = self.steps.pop(shape, None) or Step(self, caches, *shape)
        self.steps[shape] = step
        if len(self.steps) > _KEPT_STEPS:
            del self.steps[next(iter(self.steps))]
        step.load(caches, sentences, length - 1, previous)
        return step


class FixedCache(KeyValueCache):
    """A cache with room for all positions of ``padding`` (B, S); ``place`` (1,) is the next one."""

    filled = True

    def __init__(self, like: KeyValueCache, padding: Tensor, place: Tensor) -> None:
        self.padding = padding
        self.place = place
        rooms = []
        for tensor in tensors(like):
            _, heads, _, width = tensor.shape
            rooms.append(tensor.new_zeros(len(padding), heads, padding.size(1), width))
        self.key, self.value = rooms[0], rooms[-1]

    def append(self, key: Tensor, value: Tensor, padding: Tensor | None) -> None:
        """Write key (B, Hk, 1, dk) and value (B, Hv, 1, dv) at the next position."""
        for room, tensor in zip(tensors(self), (key, value), strict=False):
            room.index_copy_(2, self.place, tensor)


def tensors(cache: KeyValueCache) -> list[Tensor]:
    """Return the keys (B, Hk, S, dk) and values (B, Hv, S, dv), one tensor if both are one."""
    return [cache.key] if cache.value is cache.key else [cache.key, cache.value]


class Step:
    """A decoding step with its graph.

    It has room for so many ``sentences`` (B) of ``beam`` hypotheses, ``source`` tokens (S) and
    ``length`` target tokens (T). Rows without a sentence read one key, so that they stay finite.
    """

    def __init__(
        self,
        owner: DecodingGraphs,
        like: Caches,
        sentences: int,
        beam: int,
        source: int,
        length: int,
    ) -> None:
        self.owner = owner
        self.beam = beam
        self.length = length
        rows = sentences * beam
        with next(iter(like.values())).key.device:
            self.tokens = torch.zeros(rows, 1, dtype=torch.long)
            self.place = torch.zeros(1, dtype=torch.long)  # of these tokens in the target
            self.same_order = torch.arange(rows)
            self.order = torch.arange(rows)  # each row's row in the last step
            self.hidden = torch.ones(rows, length, dtype=torch.bool)
            self.source_padding = torch.ones(sentences, source, dtype=torch.bool)
        self.caches: Caches = {}
        self.source_tensors = [self.source_padding]  # have a row for each sentence
        for sublayer, cache in like.items():
            own = sublayer in owner.self_attention
            padding = self.hidden if own else self.source_padding
            self.caches[sublayer] = room = FixedCache(cache, padding, self.place)
            self.source_tensors += [] if own else tensors(room)
        self.replay: graphs.Work | None = None

    def load(
        self, caches: Caches, sentences: int, positions: int, previous: "Step | None"
    ) -> None:
        """Copy so many sentences and target positions of the caches, ``previous``'s if given."""
        self.sentences = sentences  # that the search still has
        self.hidden.fill_(True)
        self.hidden[:, :positions] = False
        self.order.copy_(self.same_order)
        for sublayer, cache in caches.items():
            mine = self.caches[sublayer]
            for room, tensor in zip(tensors(mine), tensors(cache), strict=True):
                if previous is not None and mine.padding is self.hidden:
                    tensor = tensor[previous.order]
                rows = min(len(room), len(tensor))
                room[:rows, :, : tensor.size(2)] = tensor[:rows]
        if self.source_padding.numel():
            last = caches[self.owner.sublayers[-1]]
            padding = False if last.padding is None else last.padding[:sentences]
            self.source_padding.fill_(True)
            self.source_padding[:sentences, : last.key.size(2)] = padding
            self.source_padding[sentences:, 0] = False

    def reorder(self, new_order: Tensor) -> None:
        """Let the next step go on from rows ``new_order`` (N,) of the last one."""
        self.order[: len(new_order)] = self.order[new_order]
        rows, _ = sentence_order(new_order, self.sentences, self.beam)
        if rows is None:
            return
        self.sentences = len(rows)
        for tensor in self.source_tensors:
            tensor[: len(rows)] = tensor.index_select(0, rows)

    def __call__(self, tokens: Tensor, encoder_out: Any) -> Tensor:
        """tokens (N, T) -> logits (N, 1, V), which the next call overwrites."""
        rows, length = tokens.shape
        self.tokens[:rows] = tokens[:, -1:]
        self.place.fill_(length - 1)
        embed = self.owner.decoder.embed_positions
        position = embed(tokens, incremental_state={})[:1]  # (1, 1, C)
        if self.replay is None:
            self.position = position.clone()
            self.replay = self.owner.record(lambda: self._compute(encoder_out))
        self.position.copy_(position)
        self.replay()
        return self.logits[:rows]

    def _compute(self, encoder_out: Any) -> None:
        """Compute the logits of all rows; the lines run only while a graph is recorded."""
        decoder = self.owner.decoder
        for sublayer in self.owner.self_attention:
            for tensor in tensors(self.caches[sublayer]):
                tensor.copy_(tensor.index_select(0, self.order))
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
