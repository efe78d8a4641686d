"""A sublayer is measured with the arguments that its model passes to it."""

import pytest

from fairseq_mhe.bench.attention import PLACES, AttentionBenchmark
from fairseq_mhe.bench.meters import peak_memory
from fairseq_mhe.bench.variants import Variant
from tests.bench.conftest import OURS, STOCK, small

CELL = {"length": 10, "batch": 3, "dtype": "float32"}


def prepared(variant: Variant, place: str, **cell) -> AttentionBenchmark:
    benchmark = AttentionBenchmark(variant, small(AttentionBenchmark, seconds=1e-4))
    benchmark.prepare({**CELL, "place": place, **cell})
    return benchmark


def test_arguments_of_stock_are_those_of_fairseqs_layers() -> None:
    """The expected values are copied from the layers in fairseq's transformer_layer.py."""
    encoder = prepared(STOCK, "encoder")._inputs
    assert encoder["query"] is encoder["key"] is encoder["value"]
    assert encoder["need_weights"] is False
    assert encoder["attn_mask"] is None
    assert encoder["key_padding_mask"].sum(1).tolist() == [0, 0, 1]
    assert encoder["key_padding_mask"][2, 0]  # on the left

    decoder = prepared(STOCK, "decoder")._inputs
    assert decoder["query"].shape == (10, 3, 128)
    assert decoder["attn_mask"].shape == (10, 10)
    assert decoder["key_padding_mask"][2, -1]  # on the right

    for place, last in (("cross", False), ("cross_last", True)):
        cross = prepared(STOCK, place)._inputs
        assert cross["static_kv"] is True
        assert cross["key"] is cross["value"] is not cross["query"]
        assert cross["need_weights"] is last


@pytest.mark.parametrize("place", PLACES)
def test_seconds_are_divided_by_the_calls(place: str) -> None:
    benchmark = prepared(OURS, place)
    assert benchmark._measure(1).keys() == {"forward", "backward"}
    benchmark._measure = lambda calls: {"forward": 2.0 * calls, "backward": 3.0 * calls}
    assert benchmark.repetition() == {"total": 5.0, "forward": 2.0, "backward": 3.0}


def test_memory_is_that_of_one_call() -> None:
    peaks = {}
    for kind in ("mha", "mhe_mul"):
        benchmark = prepared(Variant(kind, kind), "encoder", length=128)
        weights = benchmark._layer.parameters()
        assert benchmark.facts() == {"weight_bytes": 4 * sum(p.numel() for p in weights)}
        peak = peak_memory(lambda call=benchmark: call._measure(1), on_gpu=False)
        assert peak_memory(lambda call=benchmark: call._measure(5), on_gpu=False) == peak
        peaks[kind] = peak / (4 * 128 * 3 * 128)  # in tensors as large as the input (T, B, C)
    # mha holds queries, keys, values, heads, joined heads and output until the backward pass;
    # mhe_mul's shared keys and values are a quarter as large.
    assert peaks["mha"] > 6
    assert 4 < peaks["mhe_mul"] < 0.75 * peaks["mha"]
