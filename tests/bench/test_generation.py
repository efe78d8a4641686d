"""Generation does a fixed amount of work, and reports the memory of its states."""

from unittest.mock import Mock

import pytest

from fairseq_mhe.bench import generation
from fairseq_mhe.bench.generation import CTranslate2Benchmark, GenerationBenchmark, shapes
from fairseq_mhe.models.counting import cache_bytes
from tests.bench.conftest import make_settings

CELL = {"beam": 3, "length": 8, "batch": 2, "dtype": "float32"}


def prepared(variant: str, **cell) -> GenerationBenchmark:
    benchmark = GenerationBenchmark(variant, make_settings())
    benchmark.prepare({**CELL, **cell})
    return benchmark


@pytest.mark.parametrize("beam", [1, 3])
def test_the_decoder_takes_as_many_steps_as_the_length(variant: str, beam: int) -> None:
    benchmark = prepared(variant, beam=beam)
    steps = []
    forward = benchmark._model.decoder.forward
    benchmark._model.decoder.forward = lambda *args, **kwargs: (
        steps.append(len(args[0])) or forward(*args, **kwargs)
    )
    seconds = benchmark.repetition()
    assert steps == [2 * beam] * 8
    assert 0 < seconds["reorder"] < seconds["total"]
    assert benchmark.facts()["units"] == 2


@pytest.mark.parametrize("kind", ["mha", "mhe_mul", "mqa", "skv", "collaborative"])
def test_cache_bytes_are_those_of_models_counting(kind: str) -> None:
    benchmark = prepared(kind)
    benchmark.repetition()
    facts = benchmark.facts()
    assert all(isinstance(value, int) for value in facts.values())
    counted = cache_bytes(benchmark._model)
    expected = 2 * counted.per_source_token * 8 + 6 * counted.per_target_token * 8
    masks = 2 * 2 * 8  # one byte for each layer, sentence and source token
    assert expected <= facts["cache_bytes"] <= expected + masks
    assert facts["encoder_output_bytes"] >= 2 * 8 * 128 * 4


def test_a_repetition_keeps_no_states(monkeypatch: pytest.MonkeyPatch) -> None:
    """A state that stays would add to the peak memory of the next repetition."""
    states, spy = [], generation._spy
    monkeypatch.setattr(generation, "_spy", lambda *args: states.append(spy(*args)) or states[-1])
    benchmark = prepared("mha")
    benchmark.repetition()
    benchmark.repetition()
    assert states == [[]] * 4


@pytest.mark.parametrize("variant", ["ctranslate2_int8", "mhe_mul_ctranslate2_float32"])
def test_ctranslate2_translates_whole_sentences_to_the_given_length(variant: str) -> None:
    pytest.importorskip("ctranslate2")
    benchmark = CTranslate2Benchmark(variant, make_settings())
    benchmark.prepare({**CELL, "length": 10, "batch": 3})
    ((_, sentences),) = benchmark._batches
    assert [len(sentence) for sentence in sentences] == [9, 9, 8]
    benchmark._translator = Mock(wraps=benchmark._translator)
    assert benchmark.repetition()["total"] > 0
    call = benchmark._translator.translate_batch.call_args
    results = benchmark._translator._mock_wraps.translate_batch(*call.args, **call.kwargs)
    assert {len(result.hypotheses[0]) for result in results} == {10}
    assert benchmark.facts()["units"] == 3
    assert benchmark.facts()["weight_bytes"] > 0


def test_sentences_of_news_come_in_batches_of_falling_lengths() -> None:
    cell = {"beam": 2, "sentences": 400, "batch": 64, "dtype": "float32"}
    batches = shapes(cell)
    assert sum(size for size, _ in batches) == 400
    lengths = [length for _, length in batches]
    assert lengths == sorted(lengths, reverse=True)
    assert len(set(lengths)) > 5
    assert all(size <= 64 and size * length <= 4096 for size, length in batches)
    alone = [length for _, length in shapes({**cell, "batch": 1})]
    assert 22 <= alone[200] <= 26
    benchmark = GenerationBenchmark("mhe_mul", make_settings())
    benchmark.prepare({**cell, "sentences": 3, "batch": 2})
    assert benchmark.repetition()["total"] > 0
    assert benchmark.facts()["units"] == 3
