"""A repetition is a given number of whole updates by fairseq's Trainer."""

from typing import Any

import pytest
import torch
from fairseq.optim.adam import FairseqAdam
from fairseq.trainer import Trainer

from fairseq_mhe.bench.training import TrainingBenchmark
from tests.bench.conftest import make_settings
from tests.fixtures.small_runs import SMALL


def prepared(
    variant: str, dtype: str = "float32", tokens: int = 64, **changes: Any
) -> TrainingBenchmark:
    settings = {"batches": 2, "data": None, "cuda_graphs": False, **changes}
    benchmark = TrainingBenchmark(variant, make_settings(**settings))
    benchmark.prepare({"max_tokens": tokens, "dtype": dtype})
    return benchmark


@pytest.mark.parametrize("dtype", ["float32", "bf16"])
def test_weights_are_updated_once_a_batch(variant: str, dtype: str) -> None:
    benchmark = prepared(variant, dtype)
    trainer = benchmark.trainer
    assert type(trainer) is Trainer
    assert trainer.criterion.eps == 0.1
    before = [parameter.detach().clone() for parameter in trainer.model.parameters()]
    seconds = benchmark.repetition()
    assert seconds["total"] > 0
    assert trainer.get_num_updates() == 2
    assert isinstance(trainer.optimizer, FairseqAdam) is (dtype == "float32")
    if dtype == "float32":  # in bf16 the first updates of a warm-up round to nothing
        after = trainer.model.parameters()
        assert any(not torch.equal(a, b) for a, b in zip(before, after, strict=True))


def test_each_repetition_takes_the_same_random_batches_or_the_next_real_ones() -> None:
    for data in (None, SMALL / "data"):
        benchmark = prepared("mha", tokens=512, data=data, batches=3, vocab_size=1000)
        benchmark.repetition()
        benchmark.repetition()
        done = [batch["target"].tolist() for batch in benchmark._done]
        assert (done[:3] == done[3:]) is (data is None)
        if data is None:
            pad = benchmark.trainer.task.source_dictionary.pad()
            tokens = sum(int(batch["target"].ne(pad).sum()) for batch in benchmark._done[:3])
            assert benchmark.facts()["units"] == tokens


def test_cuda_graphs_are_recorded_before_the_measurement(variant: str) -> None:
    benchmark = prepared(variant, cuda_graphs=True, repetitions=3, tokens=512)
    trainer = benchmark.trainer
    ours = variant != "stock"
    assert getattr(trainer.model.args, "cuda_graphs", False) is ours
    assert trainer.get_num_updates() == (12 if ours else 0)
