"""Generation does a fixed amount of work, and says what it held."""

from __future__ import annotations

import argparse
import importlib.util

import pytest
import torch

from fairseq_mhe.bench.generation import (
    CTRANSLATE2,
    PARTS,
    CTranslate2Workload,
    GenerationBenchmark,
    storage_bytes,
)
from fairseq_mhe.common.errors import UserError
from fairseq_mhe.models.counting import cache_bytes
from tests.bench.conftest import make_settings

CELL = {"beam": 3, "length": 8, "source_length": 11, "batch": 2, "dtype": "float32"}


def prepared(variant: str, **cell) -> GenerationBenchmark:
    workload = GenerationBenchmark(variant, make_settings())
    workload.prepare({**CELL, **cell})
    return workload


@pytest.mark.parametrize("beam", [1, 3])
def test_every_output_takes_the_steps_asked_for(variant: str, beam: int) -> None:
    workload = prepared(variant, beam=beam)
    steps = []
    forward = workload._model.decoder.forward
    workload._model.decoder.forward = lambda *args, **kwargs: (
        steps.append(len(args[0])) or forward(*args, **kwargs)
    )
    seconds = workload.repetition()
    assert steps == [2 * beam] * 8
    assert 0 < seconds["reorder"] < seconds["total"]
    assert seconds.keys() == {"total", "reorder", *PARTS}
    assert all(seconds[part] > 0 for part in PARTS)
    assert sum(seconds.values()) < 2 * seconds["total"]  # parts do not overlap
    assert workload.facts()["units"] == 2


def test_another_length_is_noticed() -> None:
    workload = prepared("mha")
    workload._generator.max_len_b = workload._generator.min_len = 5
    with pytest.raises(
        RuntimeError, match=r"outputs of 8 tokens were forced, but there are some of \[6\]"
    ):
        workload.repetition()


def test_the_model_is_readied_as_fairseq_generate_does(variant: str) -> None:
    workload = prepared(variant)
    assert not workload._model.training
    assert workload._generator.beam_size == 3
    with pytest.raises(RuntimeError, match="cannot train after make_generation_fast"):
        workload._model.train()


@pytest.mark.parametrize("kind", ["mha", "mhe_mul", "mqa", "skv", "collaborative"])
def test_cache_bytes_are_those_of_the_accounting(kind: str) -> None:
    workload = prepared(kind)
    workload.repetition()
    facts = workload.facts()
    exact = cache_bytes(workload._model)
    expected = 2 * exact.per_source_token * 11 + 6 * exact.per_target_token * 8
    masks = 2 * 2 * 11  # of one byte a source token of each sentence and layer
    assert expected <= facts["cache_bytes"] <= expected + masks
    assert facts["encoder_output_bytes"] >= 2 * 11 * 128 * 4


def test_stock_fairseq_holds_more() -> None:
    held = {}
    for variant in ("stock", "mhe_mul"):
        workload = prepared(variant)
        workload.repetition()
        held[variant] = workload.facts()
    layers, width = 2, 128
    self_attention = layers * 2 * width * 4 * 6 * 8
    assert held["stock"]["cache_bytes"] >= self_attention + layers * 2 * width * 4 * 2 * 11
    assert held["stock"]["cache_bytes"] > 4 * held["mhe_mul"]["cache_bytes"]
    assert held["stock"]["encoder_output_bytes"] > held["mhe_mul"]["encoder_output_bytes"]


def test_nothing_is_kept_from_a_repetition_but_numbers() -> None:
    """Else the next repetition's peak would count the last one's cache."""
    workload = prepared("mha")
    first = workload.repetition().keys()
    spied = workload._model.decoder.reorder_incremental_state_scripting
    assert workload.repetition().keys() == first
    assert workload._model.decoder.reorder_incremental_state_scripting is not spied
    assert all(isinstance(value, int) for value in workload.facts().values())


def test_one_worker_measures_several_cells() -> None:
    workload = prepared("mha", beam=3)
    for cell in ({"length": 5}, {"beam": 1}, {"batch": 1}, {"dtype": "bf16"}):
        workload.prepare({**CELL, **cell})
        assert workload.repetition()["total"] > 0


def test_storage_is_counted_once_and_whole() -> None:
    block = torch.zeros(10, 4)
    assert (
        storage_bytes(
            {"a": block, "b": [block[:2], block.T], "c": {"d": None}, "e": (torch.zeros(3),)}
        )
        == 172
    )
    assert storage_bytes(block[:1]) == 160
    assert storage_bytes(None) == 0


@pytest.mark.skipif(
    importlib.util.find_spec("ctranslate2") is None, reason="ctranslate2 is not installed"
)
def test_ctranslate2_translates_whole_sentences_to_the_length_asked_for() -> None:
    workload = CTranslate2Workload(CTRANSLATE2, make_settings())
    workload.prepare({"beam": 2, "length": 6, "source_length": 9, "batch": 3, "dtype": "float32"})
    assert [len(sentence) for sentence in workload._sentences] == [8, 8, 7]
    assert workload.repetition()["total"] > 0  # which checks the lengths
    assert workload.facts()["units"] == 3
    assert workload.facts()["weight_bytes"] > 0


def test_without_ctranslate2_there_is_one_clear_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    asked = argparse.Namespace(attention=["mha"], int8=False, ctranslate2=True)
    with pytest.raises(UserError, match="pip install ctranslate2"):
        GenerationBenchmark.variants(asked)
