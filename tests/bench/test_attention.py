"""The memory of a sublayer is that of one call."""

from fairseq_mhe.bench.attention import AttentionBenchmark
from fairseq_mhe.bench.meters import peak_memory
from fairseq_mhe.bench.variants import Variant
from tests.bench.conftest import small

CELL = {"place": "encoder", "length": 128, "batch": 3, "dtype": "float32"}


def test_memory_is_that_of_one_call() -> None:
    peaks = []
    for kind in ("mha", "mhe_mul"):
        benchmark = AttentionBenchmark(Variant(kind, kind), small(AttentionBenchmark, seconds=1e-4))
        benchmark.prepare(CELL)
        for calls in (1, 5):
            peak = peak_memory(lambda n=calls, of=benchmark: of._measure(n), on_gpu=False)
            peaks.append(peak / (4 * 128 * 3 * 128))  # in tensors as large as the input (T, B, C)
    mha, mha_of_5, mhe, mhe_of_5 = peaks
    assert (mha, mhe) == (mha_of_5, mhe_of_5)
    # mha holds queries, keys, values, heads, joined heads and output until the backward pass;
    # mhe_mul's shared keys and values are a quarter as large.
    assert mha > 6
    assert 4 < mhe < 0.75 * mha
