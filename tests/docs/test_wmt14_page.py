"""docs/wmt14.md has what scripts/wmt14_estimate.py computes, and commands that there are."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

import wmt14_estimate as module
from fairseq_mhe.runs.recipes import RECIPES

REPOSITORY = Path(__file__).parents[2]
PAGE = (REPOSITORY / "docs" / "wmt14.md").read_text(encoding="utf-8")


def test_the_tables_are_what_is_computed() -> None:
    assert module.estimate(8, module.SHARE) in PAGE
    assert "Computed, not measured" in PAGE


def test_hours_are_in_proportion() -> None:
    once = module.hours("base", "mha", 1e13)
    assert module.hours("base", "mha", 2e13) == pytest.approx(once / 2)
    # Three times the updates, and about three and a half times the model.
    assert 9 < module.hours("big", "mha", 1e13) / once < 12
    assert module.memory("base", "mhe_mul") < module.memory("base", "mha")


def test_a_gpu_that_computes_in_no_time_has_still_to_start_the_kernels() -> None:
    (measured,) = (
        cell["variants"]
        for cell in json.loads((REPOSITORY / "results/gpu/training.json").read_text())["cells"]
        if cell["cell"]["dtype"] == "bf16"
    )
    for kind in module.KINDS:
        batch = measured[kind]["median"]["total"] / measured[kind]["updates"]
        by_hand = 100_000 * 8 * batch / 3600
        assert module.hours("base", kind, 1e20) == pytest.approx(by_hand, rel=0.01)
        assert module.hours("12h", kind, 1e20) == pytest.approx(by_hand, rel=0.01)  # 6+6 layers
        assert module.hours("8l", kind, 1e20) == pytest.approx(by_hand * 8 / 6, rel=0.01)


def test_a_base_model_takes_what_its_multiplications_by_hand_take() -> None:
    """Vaswani's rule: six operations a parameter and token, but for the embeddings' look-up."""
    layers = 6 * (4 + 8) * 512**2, 6 * (8 + 8) * 512**2
    tokens = 100_000 * RECIPES["base"].training.batch_tokens
    by_hand = 6 * tokens * (sum(layers) + module.VOCABULARY * 512) / 1e13 / 3600
    assert module.hours("base", "mha", 1e13) == pytest.approx(by_hand, rel=0.02)


def test_a_wave_of_rows_waits_for_the_one_before() -> None:
    assert module.whole([[1, 1], [1, 3]], 2) == 1 + 3
    assert module.whole([[1, 1], [1, 3]], 4) == 3
    assert module.whole([[2, 1, 1]], 2) == 2  # a model begins where another ends


def test_its_scripts_are_there() -> None:
    for script in re.findall(r"(?:bash|python) ((?:scripts|data-prep)/\S+\.(?:sh|py))", PAGE):
        assert (REPOSITORY / script).is_file()
