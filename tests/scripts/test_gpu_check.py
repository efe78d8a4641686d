"""The check on a GPU: run on the CPU, in tiny sizes, and with faults that it must find."""

from __future__ import annotations

import dataclasses
import json
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

import gpu_check
from fairseq_mhe import cli
from fairseq_mhe.attention import KINDS, cache
from fairseq_mhe.common.files import write_json
from tests.fixtures.small_runs import MADE


def quickstart(loss: float) -> Callable[..., None]:
    """Stands for subprocess.check_call: checks the command, and writes its table."""

    def run(command: list[str], **_: Any) -> None:
        args = cli.build_parser("quickstart").parse_args(command[4:])
        table = [{"attention": "mha", "valid_loss": loss}]
        write_json(args.out / "table.json", table)

    return run


def test_a_dry_run_measures_each_model_beside_stock_fairseq(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in {"EMBED_DIM": 32, "B": 2, "T": 7, "S": 9}.items():
        monkeypatch.setattr(gpu_check, name, value)  # a CPU takes long over fp16
    settings = dataclasses.replace(gpu_check.CPU.settings, vocabulary=1000)
    small = {"settings": settings, "updates": 1, "sentences": 2, "longest": 4}
    monkeypatch.setattr(gpu_check, "CPU", dataclasses.replace(gpu_check.CPU, **small))
    monkeypatch.setattr("subprocess.check_call", quickstart(5.0))
    line = ["--cpu", "--data", str(MADE / "data"), "--out", str(tmp_path)]
    assert gpu_check.main(line) == 0
    text = (tmp_path / "gpu_check.md").read_text()
    assert capsys.readouterr().out == text
    assert "- torch: " in text
    found = json.loads((tmp_path / "gpu_check.json").read_text())
    parity, (learned,), training, translation = list(found.values())[1:]
    assert [(row["kind"], row["holds"]) for row in parity] == [(kind, "yes") for kind in KINDS]
    assert learned == {"dtype": "float32", "mha": 5.0, "holds": "yes"}
    models = ["stock", "stock without cuDNN", "mha", "mhe_mul", "mhe_conv"]
    assert [row["model"] for row in training] == models
    stock, without, *ours = training
    assert "times stock" not in stock
    for row in ours:
        assert row["times stock"] == pytest.approx(row["rate"] / stock["rate"])
        assert row["without cuDNN"] == pytest.approx(row["rate"] / without["rate"])
    engines = [row["engine"] for row in translation]
    assert engines == ["fairseq"] * 8 + ["CTranslate2"] * 6
    assert all(row["rate"] > 0 for row in translation)


def test_a_difference_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gpu_check, "TOLERANCES", {"bf16": 1e-6})
    assert gpu_check.parity({"kind": "mha"}, "cpu")["holds"] == "NO"
    nothing = torch.tensor(float("nan"))
    monkeypatch.setattr(torch.Tensor, "max", lambda _: nothing)
    assert gpu_check.distance("mha", "encoder", torch.float32, "cpu") == float("inf")


def test_a_failure_is_a_row(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(what: dict[str, Any]) -> dict[str, Any]:
        raise RuntimeError("CUDA error:\n no kernel")

    found = gpu_check.Results(tmp_path, gpu_check.CPU)
    found.measure("a part", fail, model="mha")
    row = {"model": "mha", "note": "RuntimeError: CUDA error: no kernel", "holds": "NO"}
    assert json.loads((tmp_path / "gpu_check.json").read_text())["a part"] == [row]
    monkeypatch.setattr(gpu_check, "check", lambda results: results.parts.update(all=[row]))
    monkeypatch.setattr(gpu_check, "compare", lambda *_: found.measure("a part", fail))
    found.out.joinpath("gpu_check.md").touch()
    assert gpu_check.main(["--cpu", "--out", str(tmp_path)]) == 1


@pytest.mark.parametrize(("times", "holds"), [(1, "yes"), (2, "NO")])
def test_questions_are_counted(times: int, holds: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """As torch warns of them on a GPU: of each, at the line that asks."""
    real = cache._listed

    def asking(new_order: torch.Tensor, version: object) -> list[int]:
        before = real.cache_info().misses
        listed: list[int] = real(new_order, version)
        for _ in range(times * (real.cache_info().misses - before)):
            warnings.warn_explicit(
                "called a synchronizing CUDA operation", UserWarning, cache.__file__, 1
            )
        return listed

    monkeypatch.setattr(cache, "_listed", asking)
    monkeypatch.setattr(torch.cuda, "set_sync_debug_mode", lambda _: None)
    monkeypatch.setattr(gpu_check, "SEARCH", {**gpu_check.SEARCH, "dtype": "float32"})
    found = gpu_check.questions({"kind": "mhe_mul"}, "cpu")
    assert found == {"ours": times, "fairseq": 0, "holds": holds}


@pytest.mark.parametrize(("loss", "holds"), [(8.8, "yes"), (12.1, "NO"), (float("nan"), "NO")])
def test_a_model_that_learned_nothing_is_found(
    loss: float, holds: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("subprocess.check_call", quickstart(loss))
    on_a_gpu = gpu_check.Results(tmp_path, gpu_check.GPU)
    assert gpu_check.learn({"dtype": "bf16"}, on_a_gpu)["holds"] == holds


def test_batches_of_tokens_count_padding(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gpu_check, "TOKENS", 30)
    size = dataclasses.replace(gpu_check.CPU, sentences=50, longest=20)
    few, many = gpu_check.sentences(size).values()
    for batches in (few, many):
        assert sum(batch["batch"] for batch in batches) == 50
        assert max(batch["batch"] * batch["length"] for batch in batches) <= 30


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU: run the script")
def test_without_a_gpu_it_ends_in_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert gpu_check.main(["--out", str(tmp_path / "out")]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.startswith("gpu_check.py: error: torch sees no GPU here")
    assert captured.err.count("\n") == 1
    assert not (tmp_path / "out").exists()
