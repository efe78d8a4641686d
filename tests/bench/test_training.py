"""All variants update on the same batches, as often, by fairseq's Trainer."""

from typing import Any

import pytest
import torch
from fairseq.optim.adam import FairseqAdam
from fairseq.trainer import Trainer

from fairseq_mhe.bench import training
from fairseq_mhe.bench.training import TrainingBenchmark
from fairseq_mhe.bench.variants import Variant
from fairseq_mhe.models.counting import total_parameters
from tests.bench.conftest import OURS, each_variant, small
from tests.fixtures.small_runs import SMALL


@each_variant
def test_weights_are_updated_once_a_batch(variant: Variant) -> None:
    benchmark = TrainingBenchmark(variant, small(TrainingBenchmark, batches=2))
    benchmark.prepare({"max_tokens": 64, "dtype": "float32"})
    trainer = benchmark.trainer
    before = [parameter.detach().clone() for parameter in trainer.model.parameters()]
    assert benchmark.repetition()["total"] > 0
    assert trainer.get_num_updates() == 2
    assert isinstance(trainer.optimizer, FairseqAdam)
    after = trainer.model.parameters()
    assert any(not torch.equal(a, b) for a, b in zip(before, after, strict=True))


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


def test_facts_count_tokens_and_the_operations_of_the_products() -> None:
    benchmark = TrainingBenchmark(OURS, small(TrainingBenchmark, batches=2, first_epoch=4))
    benchmark.prepare({"max_tokens": 512, "dtype": "float32"})
    facts = benchmark.facts()
    pad = benchmark.trainer.task.source_dictionary.pad()
    tokens = [int(batch["target"].ne(pad).sum()) for batch in benchmark._epoch]
    assert (facts["units"], facts["first_units"]) == (sum(tokens[:2]), sum(tokens))
    # Each weight is multiplied once in each of three passes, but those of the other side.
    weights = total_parameters(benchmark.trainer.model)
    assert 0.4 < facts["operations"] / (6 * weights * facts["units"]) < 1.2
    assert facts["limit"] > 0
