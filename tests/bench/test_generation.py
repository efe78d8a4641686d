"""Generation does a fixed amount of work, and says what it held."""

from __future__ import annotations

import importlib.util
from unittest.mock import Mock

import pytest

from fairseq_mhe.bench.generation import PARTS, CTranslate2Benchmark, GenerationBenchmark, shapes
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


def test_nothing_is_kept_from_a_repetition_but_numbers() -> None:
    """Else the next repetition's peak would count the last one's cache."""
    workload = prepared("mha")
    first = workload.repetition().keys()
    spied = workload._model.decoder.reorder_incremental_state_scripting
    assert workload.repetition().keys() == first
    assert workload._model.decoder.reorder_incremental_state_scripting is not spied
    assert all(isinstance(value, int) for value in workload.facts().values())


@pytest.mark.skipif(
    importlib.util.find_spec("ctranslate2") is None, reason="ctranslate2 is not installed"
)
@pytest.mark.parametrize("variant", ["ctranslate2_int8", "mhe_mul_ctranslate2_float32"])
def test_ctranslate2_translates_whole_sentences_to_the_length_asked_for(variant: str) -> None:
    workload = CTranslate2Benchmark(variant, make_settings())
    workload.prepare({"beam": 2, "length": 6, "source_length": 9, "batch": 3, "dtype": "float32"})
    ((_, sentences),) = workload._batches
    assert [len(sentence) for sentence in sentences] == [8, 8, 7]
    workload._translator = Mock(wraps=workload._translator)
    assert workload.repetition()["total"] > 0
    call = workload._translator.translate_batch.call_args
    results = workload._translator._mock_wraps.translate_batch(*call.args, **call.kwargs)
    assert {len(result.hypotheses[0]) for result in results} == {6}
    assert workload.facts()["units"] == 3
    assert workload.facts()["weight_bytes"] > 0


def test_sentences_of_news_come_in_batches_of_falling_lengths() -> None:
    cell = {"beam": 2, "sentences": 400, "batch": 64, "dtype": "float32"}
    batches = shapes(cell)
    assert sum(size for size, *_ in batches) == 400
    lengths = [source for _, source, _ in batches]
    assert lengths == sorted(lengths, reverse=True)
    assert len(set(lengths)) > 5
    assert all(size <= 64 and size * source <= 4096 for size, source, _ in batches)
    alone = [source for _, source, _ in shapes({**cell, "batch": 1})]
    assert 22 <= alone[200] <= 26
    workload = GenerationBenchmark("mhe_mul", make_settings())
    workload.prepare({**cell, "sentences": 3, "batch": 2})
    assert workload.repetition()["total"] > 0
    assert workload.facts()["units"] == 3
