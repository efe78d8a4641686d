"""scripts/gpu_bench.py: its rows, measured in tiny sizes on the CPU; a failure is a row."""

from __future__ import annotations

import json
import time
from functools import partial
from pathlib import Path
from typing import Any

import pytest

import gpu_bench
from fairseq_mhe.bench.sentences import training_batches
from fairseq_mhe.models.build import make_dictionary


@pytest.fixture
def results(tmp_path: Path) -> gpu_bench.Results:
    return gpu_bench.Results(tmp_path, gpu_bench.CPU, time.monotonic() + 600)


def kept(results: gpu_bench.Results, part: str) -> list[dict[str, Any]]:
    """The rows that are on disk."""
    rows: list[dict[str, Any]] = json.loads((results.out / "results.json").read_text())[part]
    return rows


def test_training_is_measured_beside_stock_fairseq(results: gpu_bench.Results) -> None:
    batches = training_batches(make_dictionary(gpu_bench.CPU.vocabulary), 64, 4, 1)
    for model, allowed in (("stock", "allowed"), ("mhe_mul", "never")):
        what = {"corpus": "random", "tokens": 64, "precision": "float32", "model": model}
        what["cuDNN"] = allowed
        gpu_bench.attempt(results, "training", what, partial(gpu_bench.train, batches=batches))
    stock, ours = kept(results, "training")
    assert ours["times stock"] == pytest.approx(ours["tokens/s"] / stock["tokens/s"])
    assert "times stock" not in stock
    assert "| mhe_mul " in (results.out / "results.md").read_text()


def test_translations_are_measured_by_both_engines(results: gpu_bench.Results) -> None:
    gpu_bench.translations(results)
    rows = kept(results, "translation")
    assert [row["engine"] for row in rows] == (["fairseq"] * 4 + ["CTranslate2"] * 3) * 2
    assert all(row["sentences/s"] > 0 for row in rows)


def test_a_failure_and_what_is_too_late_are_rows(results: gpu_bench.Results) -> None:
    def fail(*_: Any) -> None:
        try:
            raise RuntimeError("CUDA error:\n no kernel")
        except RuntimeError as error:
            raise OSError("crash.pt cannot be written") from error

    what = {"engine": "fairseq", "model": "mha", "cuDNN": "never", "batch": "2 sentences"}
    gpu_bench.attempt(results, "translation", what, fail)
    assert not results.late("translation", what, 1)
    assert results.late("translation", what, 10_000)
    notes = [row["note"] for row in kept(results, "translation")]
    assert notes == ["RuntimeError: CUDA error: no kernel", "no time left"]


def test_batches_of_tokens_count_padding() -> None:
    assert gpu_bench.by_tokens([9, 8, 8, 3, 3, 2, 2], 18) == [[9, 8], [8, 3], [3, 2, 2]]
