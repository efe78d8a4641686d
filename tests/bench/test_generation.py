"""Generation does a fixed amount of work, in fairseq and in CTranslate2."""

from typing import Any
from unittest.mock import Mock

import pytest
import torch

from fairseq_mhe.bench.generation import CTranslate2Benchmark, GenerationBenchmark, shapes
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


def test_ctranslate2_translates_whole_sentences_to_the_given_length() -> None:
    pytest.importorskip("ctranslate2")
    variant = Variant("in ctranslate2", "mhe_mul", "int8", by_ctranslate2=True)
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


def test_sentences_of_news_are_sorted_into_batches() -> None:
    options = small(GenerationBenchmark, sentences=9, beams=[1], batch_sizes=[2])
    (cell,) = GenerationBenchmark.cells(options)
    batches = shapes(cell)
    counts, lengths = zip(*batches, strict=True)
    assert (sum(counts), max(counts)) == (9, 2)
    assert sorted(lengths, reverse=True) == list(lengths)
    assert 4 <= min(lengths) < max(lengths) <= 120
