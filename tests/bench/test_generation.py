"""Generation does a fixed amount of work, in fairseq and in CTranslate2."""

from typing import Any
from unittest.mock import Mock

import pytest
import torch

from fairseq_mhe.bench import generation
from fairseq_mhe.bench.generation import CTranslate2Benchmark, GenerationBenchmark
from fairseq_mhe.bench.variants import Variant
from tests.bench.conftest import OURS, STOCK, small

CELL = {"beam": 3, "length": 8, "batch": 2, "dtype": "float32"}
IN_BF16 = Variant("stock_bf16", precision="bf16")


def prepared(variant: Variant, **cell: Any) -> Any:
    benchmark = GenerationBenchmark(variant, small(GenerationBenchmark))
    benchmark.prepare({**CELL, **cell})
    return benchmark


@pytest.mark.parametrize("variant", [STOCK, OURS, IN_BF16], ids=lambda one: one.name)
def test_the_decoder_takes_as_many_steps_as_the_length(variant: Variant) -> None:
    benchmark = prepared(variant)
    decoder = benchmark._model.decoder
    decoder.forward = Mock(wraps=decoder.forward)
    assert benchmark.repetition()["total"] > 0
    assert [len(call.args[0]) for call in decoder.forward.call_args_list] == [2 * 3] * 8
    assert benchmark.facts()["units"] == 2
    dtype = torch.bfloat16 if variant is IN_BF16 else torch.float32
    assert {p.dtype for p in benchmark._model.parameters()} == {dtype}


@pytest.mark.parametrize("kind", ["", "mhe_mul"])
def test_ctranslate2_translates_whole_sentences_to_the_given_length(kind: str) -> None:
    pytest.importorskip("ctranslate2")
    variant = Variant("in ctranslate2", kind, "int8", by_ctranslate2=True)
    benchmark: Any = CTranslate2Benchmark(variant, small(GenerationBenchmark))
    benchmark.prepare({**CELL, "length": 10, "batch": 3})
    results = []
    translate = benchmark._translator.translate_batch
    benchmark._translator = Mock()
    benchmark._translator.translate_batch = lambda *args, **options: results.extend(
        translate(*args, **options)
    )
    assert benchmark.repetition()["total"] > 0
    assert [len(result.hypotheses[0]) for result in results] == [10] * 3
    facts = benchmark.facts()
    assert facts["units"] == 3
    assert facts["weight_bytes"] > 0


def test_kinds_are_compared_with_stock_at_its_best_and_with_both_in_ctranslate2(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """CTranslate2 holds no filters; a compute type that it lacks on this machine is left out."""
    pytest.importorskip("ctranslate2")
    given: dict[str, Any] = {"attention": ["mhe_mul", "mhe_conv"], "ctranslate2": True}
    expected = {
        "cpu": "stock stock_tuned mhe_mul mhe_conv mhe_mul_int8 mhe_conv_int8 stock_bf16 "
        "mhe_mul_bf16 mhe_conv_bf16 ctranslate2_float32 mhe_mul_ctranslate2_float32 "
        "ctranslate2_int8 mhe_mul_ctranslate2_int8 "
        "ctranslate2_bfloat16 mhe_mul_ctranslate2_bfloat16",
        "cuda": "stock stock_without_cudnn mhe_mul mhe_conv mhe_mul_without_graphs "
        "mhe_conv_without_graphs ctranslate2_float16 mhe_mul_ctranslate2_float16",
    }
    supported = {"float32", "int8", "bfloat16", "float16"}
    monkeypatch.setattr("ctranslate2.get_supported_compute_types", lambda device: supported)
    for device, names in expected.items():
        flags = ("int8", "bf16") if device == "cpu" else ("without_graphs",)
        options = small(GenerationBenchmark, device=device, **given, **dict.fromkeys(flags, True))
        variants = GenerationBenchmark.variants(options)
        assert " ".join(variant.name for variant in variants) == names
    assert "mhe_conv" in capsys.readouterr().err
    supported.remove("bfloat16")
    assert generation.compute_types("cpu") == ["float32", "int8"]
    assert "bfloat16" in capsys.readouterr().err
