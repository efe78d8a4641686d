"""A repetition is so many whole updates of fairseq's Trainer."""

from __future__ import annotations

import pytest
import torch
from fairseq.optim.adam import FairseqAdam
from fairseq.trainer import Trainer

from fairseq_mhe.bench.training import TrainingBenchmark
from tests.bench.conftest import make_settings


def prepared(variant: str, dtype: str = "float32") -> TrainingBenchmark:
    workload = TrainingBenchmark(variant, make_settings(batches=2))
    workload.prepare({"max_tokens": 64, "dtype": dtype})
    return workload


@pytest.mark.parametrize("dtype", ["float32", "bf16"])
def test_weights_are_updated_once_a_batch(variant: str, dtype: str) -> None:
    workload = prepared(variant, dtype)
    trainer = workload.trainer
    assert type(trainer) is Trainer
    assert trainer.criterion.eps == 0.1
    before = [parameter.detach().clone() for parameter in trainer.model.parameters()]
    seconds = workload.repetition()
    assert seconds["total"] > 0
    assert trainer.get_num_updates() == 2
    assert isinstance(trainer.optimizer, FairseqAdam) is (dtype == "float32")
    if dtype == "float32":  # in bf16 a warm-up's first updates are too small to show
        assert any(
            not torch.equal(a, b)
            for a, b in zip(before, trainer.model.parameters(), strict=True)
        )


def test_facts_count_the_real_tokens() -> None:
    workload = prepared("mha")
    pad = workload.trainer.task.source_dictionary.pad()
    facts = workload.facts()
    batches = workload.batches
    assert facts["units"] == sum(int(b["target"].ne(pad).sum()) for b in batches)
    assert facts["source_tokens"] == sum(
        int(b["net_input"]["src_tokens"].ne(pad).sum()) for b in batches
    )
    assert facts["sentences"] == sum(len(b["target"]) for b in batches)
    assert facts["padding"] == 1 - facts["units"] / sum(b["target"].numel() for b in batches)
    assert facts["updates"] == 2
