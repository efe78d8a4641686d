"""Generation does a fixed amount of work, in fairseq and in CTranslate2."""

from typing import Any
from unittest.mock import Mock

import pytest
import torch

from fairseq_mhe.bench import generation
from fairseq_mhe.bench.generation import CTranslate2Benchmark, GenerationBenchmark, shapes
from fairseq_mhe.bench.variants import Variant
from tests.bench.conftest import OURS, small

CELL = {"beam": 3, "length": 8, "batch": 2, "dtype": "float32"}


def prepared(variant: Variant, **cell: Any) -> Any:
    benchmark = GenerationBenchmark(variant, small(GenerationBenchmark))
    benchmark.prepare({**CELL, **cell})
    return benchmark


@pytest.mark.parametrize("beam", [1, 3])
def test_the_decoder_takes_as_many_steps_as_the_length(variant: Variant, beam: int) -> None:
    benchmark = prepared(variant, beam=beam)
    steps = []
    forward = benchmark._model.decoder.forward
    benchmark._model.decoder.forward = lambda *args, **kwargs: (
        steps.append(len(args[0])) or forward(*args, **kwargs)
    )
    assert benchmark.repetition()["total"] > 0
    assert steps == [2 * beam] * 8
    assert benchmark.facts()["units"] == 2


def test_stock_in_bf16_has_weights_in_bf16() -> None:
    benchmark = prepared(Variant("stock_bf16", precision="bf16"))
    assert {p.dtype for p in benchmark._model.parameters()} == {torch.bfloat16}
    assert benchmark.repetition()["total"] > 0


@pytest.mark.parametrize("kind", ["", "mhe_mul"])
def test_ctranslate2_translates_whole_sentences_to_the_given_length(kind: str) -> None:
    pytest.importorskip("ctranslate2")
    variant = Variant("in ctranslate2", kind, "int8", by_ctranslate2=True)
    benchmark: Any = CTranslate2Benchmark(variant, small(GenerationBenchmark))
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


def test_kinds_are_compared_with_stock_at_its_best_and_with_both_in_ctranslate2(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """CTranslate2 holds no filters; a compute type that it lacks on this machine is left out."""
    pytest.importorskip("ctranslate2")
    given: dict[str, Any] = {"attention": ["mhe_mul", "mhe_conv"], "ctranslate2": True}
    expected = {
        "cpu": "stock stock_tuned mhe_mul mhe_conv mhe_mul_int8 mhe_conv_int8 stock_bf16 "
        "mhe_mul_bf16 mhe_conv_bf16 ctranslate2_int8 mhe_mul_ctranslate2_int8 "
        "ctranslate2_bfloat16 mhe_mul_ctranslate2_bfloat16",
        "cuda": "stock stock_without_cudnn mhe_mul mhe_conv mhe_mul_without_graphs "
        "mhe_conv_without_graphs ctranslate2_float16 mhe_mul_ctranslate2_float16",
    }
    supported = {"int8", "bfloat16", "float16"}
    monkeypatch.setattr("ctranslate2.get_supported_compute_types", lambda device: supported)
    for device, names in expected.items():
        flags = ("int8", "bf16") if device == "cpu" else ("without_graphs",)
        options = small(GenerationBenchmark, device=device, **given, **dict.fromkeys(flags, True))
        variants = GenerationBenchmark.variants(options)
        assert " ".join(variant.name for variant in variants) == names
    assert "mhe_conv is left out in CTranslate2" in capsys.readouterr().err
    supported.remove("bfloat16")
    assert generation.compute_types("cpu") == ["int8"]
    assert "bfloat16" in capsys.readouterr().err


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
    benchmark = GenerationBenchmark(OURS, small(GenerationBenchmark))
    benchmark.prepare({**cell, "sentences": 3, "batch": 2})
    assert benchmark.repetition()["total"] > 0
    assert benchmark.facts()["units"] == 3
