"""What incremental decoding keeps of one sublayer: keys, values, padding; appended, reordered."""

import functools

import torch
from torch import Tensor


class KeyValueCache:
    """Keys (B, Hk, S, dk), values (B, Hv, S, dv; one tensor where keys are values), padding (B, S).

    B counts sentences in cross-attention (kept once, whatever the beam), hypotheses elsewhere;
    ``beam`` query rows share one row of the cache.
    """

    key: Tensor
    value: Tensor
    #: True where a key is padding; None where none is.
    padding: Tensor | None = None
    filled = False
    beam = 1

    def append(self, key: Tensor, value: Tensor, padding: Tensor | None) -> None:
        """Add new positions: key (B, Hk, T, dk), value (B, Hv, T, dv), padding (B, T) or None."""
        if self.filled:
            if padding is not None or self.padding is not None:
                before = _hidden(self.padding, self.key)
                padding = torch.cat((before, _hidden(padding, key)), dim=1)
            same = value is key
            key = torch.cat((self.key, key), dim=2)
            value = key if same else torch.cat((self.value, value), dim=2)
        self.key = key
        self.value = value
        self.padding = padding
        self.filled = True

    def reorder(self, new_order: Tensor) -> None:
        """Select rows by ``new_order`` (new B * beam,) of query rows; free where nothing moves."""
        rows, _ = sentence_order(new_order, self.key.size(0), self.beam)
        if rows is None:
            return
        same = self.value is self.key
        self.key = self.key.index_select(0, rows)
        self.value = self.key if same else self.value.index_select(0, rows)
        if self.padding is not None:
            self.padding = self.padding.index_select(0, rows)


def _hidden(padding: Tensor | None, key: Tensor) -> Tensor:
    """(B, S), true where a key (B, Hk, S, dk) is padding."""
    if padding is not None:
        return padding.bool()
    shape = key.size(0), key.size(2)
    return torch.zeros(shape, dtype=torch.bool, device=key.device)


def sentence_order(
    new_order: Tensor, sentences: int, beam: int
) -> tuple[Tensor | None, int]:
    """The rows to select of those kept once a sentence, or None where nothing moves; and the beam.

    ``new_order`` (N,) has the old index of each new hypothesis, ``beam`` neighbours a sentence. The
    beam becomes 1 where an order mixes sentences inside a group, which beam search never does.

    A GPU, which answers after all its work, is asked once for all layers and models of a step.
    """
    if sentences == 1 and len(new_order) == beam:
        return None, beam
    return _rows_and_beam(new_order, version(new_order), sentences, beam)


def version(tensor: Tensor) -> object:
    """What changes when a tensor is written to; tensors of inference mode do not count that."""
    return object() if tensor.is_inference() else tensor._version


#: Two orders a step: of hypotheses in self-attention, of sentences elsewhere.
@functools.lru_cache(maxsize=2)
def _rows_and_beam(
    new_order: Tensor, version: object, sentences: int, beam: int
) -> tuple[Tensor | None, int]:
    rows = new_order // beam  # (N,), the sentence that each new hypothesis comes from
    moved = [index // beam for index in _listed(new_order, version)]
    firsts = moved[::beam]
    in_groups = [first for first in firsts for _ in range(beam)]
    if moved == in_groups:
        rows, moved = rows[::beam], firsts
    else:
        beam = 1
    return (None if moved == list(range(sentences)) else rows), beam


@functools.lru_cache(maxsize=1)
def _listed(new_order: Tensor, version: object) -> list[int]:
    """The order as numbers, for which a step asks the device once."""
    return new_order.tolist()
