"""The cache of one sublayer in incremental decoding: append new positions, reorder rows."""

import functools

import torch
from torch import Tensor


class KeyValueCache:
    """Keys (B, Hk, S, dk), values (B, Hv, S, dv) and padding (B, S) of all positions so far.

    In self-attention B counts hypotheses. In cross-attention B counts sentences, and the ``beam``
    hypotheses of a sentence share its row. Where keys are also values, both are one tensor.
    """

    key: Tensor
    value: Tensor
    #: True where a key is padding; None if no key is.
    padding: Tensor | None = None
    filled = False
    beam = 1
    #: The last inputs (J, N, C) of the query side, for kinds that read several positions.
    earlier: Tensor | None = None

    def append(self, key: Tensor, value: Tensor, padding: Tensor | None) -> None:
        """Add new positions: key (B, Hk, T, dk), value (B, Hv, T, dv), padding (B, T) or None."""
        if self.filled:
            if padding is not None or self.padding is not None:
                old = _padding_mask(self.padding, self.key)
                padding = torch.cat((old, _padding_mask(padding, key)), dim=1)
            same = value is key
            key = torch.cat((self.key, key), dim=2)
            value = key if same else torch.cat((self.value, value), dim=2)
        self.key = key
        self.value = value
        self.padding = padding
        self.filled = True

    def after_earlier(self, x: Tensor, count: int) -> Tensor:
        """Return ``count`` earlier inputs, zeros at first, and x (T, N, C): (count + T, N, C)."""
        earlier = self.earlier
        if earlier is None:
            earlier = x.new_zeros(count, *x.shape[1:])
        x = torch.cat((earlier, x))
        self.earlier = x[-count:]
        return x

    def reorder(self, new_order: Tensor) -> None:
        """Keep the rows of hypotheses ``new_order`` (new B * beam,); copy nothing if none moves."""
        if self.earlier is not None:
            self.earlier = self.earlier.index_select(1, new_order)
        rows, _ = sentence_order(new_order, self.key.size(0), self.beam)
        if rows is None:
            return
        same = self.value is self.key
        self.key = self.key.index_select(0, rows)
        self.value = self.key if same else self.value.index_select(0, rows)
        if self.padding is not None:
            self.padding = self.padding.index_select(0, rows)


def _padding_mask(padding: Tensor | None, key: Tensor) -> Tensor:
    """Return padding (B, S), all false if it is None; key: (B, Hk, S, dk)."""
    if padding is not None:
        return padding
    return key.new_zeros(len(key), key.size(2), dtype=torch.bool)


def sentence_order(
    new_order: Tensor, sentences: int, beam: int
) -> tuple[Tensor | None, int]:
    """Return which of ``sentences`` rows to select, or None if no row moves, and the new beam.

    ``new_order`` (N,) holds the old index of each new hypothesis; ``beam`` neighbours share the row
    of a sentence. The new beam is 1 if neighbours mix sentences, which beam search never does.
    """
    if sentences == 1 and len(new_order) == beam:
        return None, beam  # whatever the order is, so the host need not read it
    return _rows_and_beam(new_order, version(new_order), sentences, beam)


def version(tensor: Tensor) -> object:
    """Return a value that changes with each write to ``tensor``; in inference mode, each call."""
    return object() if tensor.is_inference() else tensor._version


# A step needs two results: one for self-attention (beam 1), one for cross-attention.
@functools.lru_cache(maxsize=2)
def _rows_and_beam(
    new_order: Tensor, version: object, sentences: int, beam: int
) -> tuple[Tensor | None, int]:
    """Return what `sentence_order` does; ``version`` changes if ``new_order`` is written to."""
    old_rows = [index // beam for index in _to_host(new_order, version)]
    rows, new_beam = old_rows[::beam], beam
    if old_rows != [row for row in rows for _ in range(beam)]:  # neighbours mix sentences
        rows, new_beam = old_rows, 1
    if rows == list(range(sentences)):
        return None, new_beam
    return (new_order // beam)[::new_beam], new_beam


@functools.lru_cache(maxsize=1)
def _to_host(new_order: Tensor, version: object) -> list[int]:
    """Return the order as a list; all layers and models of a step wait for a GPU only once."""
    return new_order.tolist()
