"""What incremental decoding keeps of one sublayer: keys, values, padding; appended, reordered."""

import functools
from collections.abc import Mapping

import torch
from torch import Tensor


class KeyValueCache(dict[str, Tensor | None]):
    """Keys (B, Hk, S, dk), values (B, Hv, S, dv) and padding (B, S) under fairseq's own names.

    It is a dictionary because fairseq's layers look into it ("prev_key" in buffer). Where keys are
    values, both names hold one tensor. B counts sentences in cross-attention (kept once, whatever
    the beam) and hypotheses elsewhere; ``beam`` is the number of query rows that share one row of
    the cache.
    """

    def __init__(self, entries: Mapping[str, Tensor | None] | None = None) -> None:
        super().__init__(entries or {})
        self.beam = 1

    @property
    def filled(self) -> bool:
        """Whether anything is cached yet."""
        return self.get("prev_key") is not None

    @property
    def key(self) -> Tensor:
        """(B, Hk, S, dk)."""
        key = self["prev_key"]
        assert key is not None  # noqa: S101 - callers ask `filled` first; tells mypy so
        return key

    @property
    def value(self) -> Tensor:
        """(B, Hv, S, dv)."""
        value = self["prev_value"]
        assert value is not None  # noqa: S101 - as above
        return value

    @property
    def padding(self) -> Tensor | None:
        """(B, S), true where a key is padding; None where none is."""
        return self.get("prev_key_padding_mask")

    @property
    def nbytes(self) -> int:
        """Bytes of key/value storage held (a tensor that serves as both counts once)."""
        if not self.filled:
            return 0
        return self.key.nbytes + (0 if self.value is self.key else self.value.nbytes)

    def append(self, key: Tensor, value: Tensor, padding: Tensor | None) -> None:
        """Add new positions: key (B, Hk, T, dk), value (B, Hv, T, dv), padding (B, T) or None."""
        if self.filled:
            padding = _joined_padding(self.padding, padding, self.key.size(2), key)
            same = value is key
            key = torch.cat((self.key, key), dim=2)
            value = key if same else torch.cat((self.value, value), dim=2)
        self.update(prev_key=key, prev_value=value, prev_key_padding_mask=padding)

    def reorder(self, new_order: Tensor) -> None:
        """Select rows by ``new_order`` (new B * beam,) of query rows; free where nothing moves."""
        rows, _ = sentence_order(new_order, self.key.size(0), self.beam)
        if rows is None:
            return
        key, value, padding = self.key, self.value, self.padding
        new_key = key.index_select(0, rows)
        new_value = new_key if value is key else value.index_select(0, rows)
        new_padding = None if padding is None else padding.index_select(0, rows)
        self.update(prev_key=new_key, prev_value=new_value, prev_key_padding_mask=new_padding)


def sentence_order(new_order: Tensor, sentences: int, beam: int) -> tuple[Tensor | None, int]:
    """Translate an order of hypotheses into one of rows that are kept once a sentence.

    On a GPU, to ask what an order says is to wait for all work before it. So the device is asked
    once for all layers and models of a step, which share the order's tensor, and not at all where
    there is only one row.

    Args:
        new_order: (N,) old hypothesis index of each new hypothesis, ``beam`` neighbours a sentence.
        sentences: rows kept now.
        beam: hypotheses a row.

    Returns:
        The rows to select, or None where nothing moves, and the beam afterwards: unchanged, or 1
        where an order mixes sentences inside a group (beam search never does), so that each
        hypothesis must have a row of its own.
    """
    if sentences == 1 and len(new_order) == beam:
        return None, beam
    # A tensor of inference mode does not count its changes, so nothing is remembered of it.
    version = object() if new_order.is_inference() else new_order._version
    return _translated(new_order, version, sentences, beam)


#: Two orders a step: of hypotheses in self-attention, of sentences elsewhere.
@functools.lru_cache(maxsize=2)
def _translated(
    new_order: Tensor, version: object, sentences: int, beam: int
) -> tuple[Tensor | None, int]:
    """:func:`sentence_order`, remembered while ``new_order`` is the same and of ``version``."""
    rows, moved = new_order // beam, [index // beam for index in _listed(new_order, version)]
    firsts = moved[::beam]
    if len(moved) % beam == 0 and moved == [first for first in firsts for _ in range(beam)]:
        rows, moved = rows[::beam], firsts
    else:
        beam = 1
    return (None if moved == list(range(sentences)) else rows), beam


@functools.lru_cache(maxsize=1)
def _listed(new_order: Tensor, version: object) -> list[int]:
    """The step's one question to the device."""
    return new_order.tolist()


def _joined_padding(
    old: Tensor | None, new: Tensor | None, old_length: int, key: Tensor
) -> Tensor | None:
    """(B, S) and (B, T) -> (B, S + T); None is no padding; ``key`` is the new (B, Hk, T, dk)."""
    if old is None and new is None:
        return None
    if old is None:
        old = torch.zeros(key.size(0), old_length, dtype=torch.bool, device=key.device)
    if new is None:
        new = torch.zeros(key.size(0), key.size(2), dtype=torch.bool, device=key.device)
    return torch.cat((old.bool(), new.bool()), dim=1)
