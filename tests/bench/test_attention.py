"""A sublayer is measured with the arguments that its model passes to it."""

from fairseq_mhe.bench.attention import AttentionBenchmark
from fairseq_mhe.bench.meters import peak_memory
from fairseq_mhe.bench.variants import Variant
from tests.bench.conftest import STOCK, small


def prepared(variant: Variant, place: str, **cell: int) -> AttentionBenchmark:
    benchmark = AttentionBenchmark(variant, small(AttentionBenchmark, seconds=1e-4))
    benchmark.prepare({"length": 10, "batch": 3, "dtype": "float32", "place": place, **cell})
    return benchmark


def test_arguments_of_stock_are_those_of_fairseqs_layers() -> None:
    """As in fairseq's transformer_layer.py."""
    encoder = prepared(STOCK, "encoder")._inputs
    assert encoder["query"] is encoder["key"] is encoder["value"]
    assert encoder["key_padding_mask"].sum(1).tolist() == [0, 0, 1]
    assert prepared(STOCK, "decoder")._inputs["attn_mask"].shape == (10, 10)
    for place, last in (("cross", False), ("cross_last", True)):
        cross = prepared(STOCK, place)._inputs
        assert cross["key"] is cross["value"] is not cross["query"]
        assert cross["need_weights"] is last


def test_memory_is_that_of_one_call() -> None:
    peaks = []
    for kind in ("mha", "mhe_mul"):
        benchmark = prepared(Variant(kind, kind), "encoder", length=128)
        for calls in (1, 5):
            peak = peak_memory(lambda n=calls, of=benchmark: of._measure(n), on_gpu=False)
            peaks.append(peak / (4 * 128 * 3 * 128))  # in tensors as large as the input (T, B, C)
    mha, mha_of_5, mhe, mhe_of_5 = peaks
    assert (mha, mhe) == (mha_of_5, mhe_of_5)
    # mha holds queries, keys, values, heads, joined heads and output until the backward pass;
    # mhe_mul's shared keys and values are a quarter as large.
    assert mha > 6
    assert 4 < mhe < 0.75 * mha
