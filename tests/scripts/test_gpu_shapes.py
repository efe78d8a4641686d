"""What new shapes cost on a GPU: run on the CPU, in tiny sizes."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest
import torch

import gpu_shapes

TABLE = Path(__file__).parents[2] / "results" / "gpu" / "shapes.md"


def test_a_dry_run_prints_the_rows_of_the_kept_table(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The headings, models and settings of cuDNN's attention are those of the run on a GPU."""
    monkeypatch.setattr(gpu_shapes, "CPU", dataclasses.replace(gpu_shapes.CPU, batches=3))
    monkeypatch.setattr(gpu_shapes, "SENTENCES", 2)
    monkeypatch.setenv("FAIRSEQ_MHE_CUDNN", "")  # which the run sets
    allowed = torch.backends.cuda.cudnn_sdp_enabled()
    try:
        assert gpu_shapes.main(["--cpu"]) == 0
        assert not torch.backends.cuda.cudnn_sdp_enabled()
    finally:
        torch.backends.cuda.enable_cudnn_sdp(allowed)
    kept = [line for line in TABLE.read_text(encoding="utf-8").splitlines() if line[:1] == "|"]
    printed = capsys.readouterr().out.splitlines()
    assert printed[:2] == kept[:2]
    assert [_cells(line)[:2] for line in printed] == [_cells(line)[:2] for line in kept]
    for line in printed[2:]:
        numbers = ", ".join(_cells(line)[2:]).split(", ")
        assert len(numbers) == 9
        assert all(float(number) > 0 for number in numbers)


def _cells(line: str) -> list[str]:
    return [cell.strip() for cell in line.strip("|").split("|")]


def test_all_shapes_differ_and_fill_a_batch() -> None:
    shapes = gpu_shapes.new_shapes(gpu_shapes.GPU.batches, gpu_shapes.GPU.tokens)
    assert len(set(shapes)) == gpu_shapes.GPU.batches
    for sentences, *lengths in shapes:
        assert 0 <= gpu_shapes.GPU.tokens - sentences * max(lengths) < max(lengths)


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU: run the script")
def test_without_a_gpu_it_ends_in_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert gpu_shapes.main([]) == 2
    out, error = capsys.readouterr()
    assert out == ""
    assert error.startswith("gpu_shapes.py: error: torch sees no GPU here")
    assert error.count("\n") == 1
