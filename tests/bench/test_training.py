"""All variants update on the same batches, as often, by fairseq's Trainer."""

from typing import Any

import pytest
from fairseq.trainer import Trainer

from fairseq_mhe.bench import training
from fairseq_mhe.bench.training import TrainingBenchmark
from tests.bench.conftest import small
from tests.fixtures.small_runs import SMALL


@pytest.mark.parametrize("real", [True, False], ids=["real", "random"])
def test_all_variants_train_on_the_same_batches_as_often(
    real: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A shape of batches that a variant has seen before is faster: cuDNN's plans, CUDA graphs."""
    seen: list[Any] = []

    class RecordingTrainer(Trainer):
        def train_step(self, samples: Any, raise_oom: bool = False) -> None:
            seen.append(samples[0]["target"].tolist())

    monkeypatch.setattr(training, "Trainer", RecordingTrainer)
    data = SMALL / "data" if real else None
    sizes = {"batches": 3, "first_epoch": 5, "data": data, "vocab_size": 1000}
    options = small(TrainingBenchmark, **sizes)
    on_gpu = small(TrainingBenchmark, attention=["mhe_mul"], without_graphs=True, device="cuda")
    variants = TrainingBenchmark.variants(on_gpu)
    names = [variant.name for variant in variants]
    assert names == ["stock", "stock_without_cudnn", "mhe_mul", "mhe_mul_without_graphs"]
    logs = []
    for variant in variants:
        seen.clear()
        benchmark = TrainingBenchmark(variant, options)
        benchmark.begin({"max_tokens": 512, "dtype": "float32"})
        warm_ups = len(seen)
        benchmark.turn()
        benchmark.turn()
        logs.append((warm_ups, list(seen)))
    assert all(log == logs[0] for log in logs)
    count, batches = logs[0]
    warm_up, (*_, a, b, c) = batches[:count], batches
    assert batches[-6:] == [a, b, c, a, b, c], "each turn has the same batches"
    assert min(map(warm_up.count, (a, b, c))) >= 2, "they come twice before the clock starts"
    assert len({str(batch) for batch in warm_up}) > 5, "the first epoch goes on to others"
