"""scripts/gpu_bench.py: its rows, measured in tiny sizes on the CPU; a failure is a row."""

from __future__ import annotations

import dataclasses
import json
import time
from pathlib import Path
from typing import Any

import pytest

import gpu_bench
from tests.fixtures.small_runs import MADE


def kept(out: Path, part: str) -> list[dict[str, Any]]:
    """The rows that are on disk."""
    rows: list[dict[str, Any]] = json.loads((out / "bench.json").read_text())[part]
    return rows


def test_a_dry_run_measures_each_model_beside_stock_fairseq(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gpu_bench, "CPU", dataclasses.replace(gpu_bench.CPU, vocabulary=1000))
    assert gpu_bench.main(["--cpu", "--data", str(MADE / "data"), "--out", str(tmp_path)]) == 0
    rows = kept(tmp_path, "training")
    assert [row["model"] for row in rows] == ["stock", "stock", "mha", "mhe_mul", "mhe_conv"]
    stock, without, *ours = rows
    assert "times stock" not in stock
    for row in ours:
        assert row["times stock"] == pytest.approx(row["tokens/s"] / stock["tokens/s"])
        assert row["without cuDNN"] == pytest.approx(row["tokens/s"] / without["tokens/s"])
    rows = kept(tmp_path, "translation")
    assert [row["engine"] for row in rows] == (["fairseq"] * 4 + ["CTranslate2"] * 3) * 2
    assert all(row["sentences/s"] > 0 for row in rows)


def test_a_failure_is_a_row_and_what_is_too_late_is_none(tmp_path: Path) -> None:
    def fail(what: dict[str, Any]) -> dict[str, Any]:
        raise RuntimeError("CUDA error:\n no kernel")

    results = gpu_bench.Results(tmp_path, gpu_bench.CPU, time.monotonic() + 600)
    results.measure("translation", fail, model="mha")
    results.end = 0
    results.measure("translation", fail, model="mhe_mul")
    row = {"model": "mha", "note": "RuntimeError: CUDA error: no kernel"}
    assert kept(tmp_path, "translation") == [row]


def test_batches_of_tokens_count_padding() -> None:
    assert gpu_bench.by_tokens([9, 8, 8, 3, 3, 2, 2], 18) == [[9, 8], [8, 3], [3, 2, 2]]
