"""The check on a GPU: run on the CPU, in tiny sizes, and with faults that it must find."""

from __future__ import annotations

import functools
import json
import shutil
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest
import torch

import gpu_check
from fairseq_mhe import cli
from fairseq_mhe.attention import KINDS, base, cache
from tests.fixtures.sandbox import Sandbox
from tests.fixtures.trained import Finished

MODULES = "gpu_check", "gpu_bench"


def test_a_dry_run_ends_in_one_table(
    finished: Finished,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(gpu_check, "EMBED_DIM", 32)  # a CPU takes long over fp16
    shutil.copytree(finished.out, tmp_path / "out" / "float32")  # trained already
    assert gpu_check.main(["--cpu", "--out", str(tmp_path / "out")]) == 0
    printed, told = capsys.readouterr()
    assert printed == (tmp_path / "out" / "gpu_check.md").read_text()
    assert "- torch: " in printed
    rows = [
        [cell.strip() for cell in line.strip("|").split("|")]
        for line in printed.split("\n")
        if line.startswith("| ")
    ][2:]
    trained = [("training, float32", kind) for kind in ("mha", "mhe_mul")]
    assert [(check, what) for check, what, *_ in rows] == [
        *(("parity", kind) for kind in KINDS),
        *trained,
    ]
    assert {holds for *_, holds in rows} == {"yes"}
    # A run that is stopped has told what it found.
    assert {": ".join(row) for row in rows} <= set(told.splitlines())


def test_on_a_gpu_the_commands_are_ours_too() -> None:
    """With options that they take: parsed, and not run."""
    for words in gpu_check.trainings("cuda").values():
        assert cli.build_parser("quickstart").parse_args(["quickstart", *words])


def test_a_wrong_kernel_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    attend: Callable[..., Any] = base.attend

    def wrong(*args: Any, scale: float, **given: Any) -> Any:
        return attend(*args, scale=1.01 * scale, **given)

    monkeypatch.setattr(base, "attend", wrong)
    assert not gpu_check.parity("mha", "cpu")[1]
    # What is no number is no small difference.
    assert gpu_check._apart(torch.tensor([float("nan")]), torch.ones(1)) == float("inf")


def test_an_error_of_a_kind_is_a_row(monkeypatch: pytest.MonkeyPatch) -> None:
    def check(kind: str, device: str) -> tuple[str, bool]:
        if kind == "mha":
            raise RuntimeError("CUDA error: no kernel image\nand more of it")
        return "fine", True

    first, second, *_ = gpu_check.every_kind(check, "cpu")
    assert first == ("check", "mha", "CUDA error: no kernel image", "NO")
    assert second == ("check", "mhe_mul", "fine", "yes")


@pytest.mark.parametrize(("times", "found", "holds"), [(1, "1.00", True), (2, "2.00", False)])
def test_questions_are_counted(
    times: int, found: str, holds: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As torch warns of them on a GPU: of each, at the line that asks."""
    listed = cache._listed.__wrapped__

    @functools.lru_cache(maxsize=1)
    def asking(new_order: torch.Tensor, version: object) -> list[int]:
        for _ in range(times):
            warnings.warn_explicit(
                "called a synchronizing CUDA operation", UserWarning, cache.__file__, 1
            )
        return listed(new_order, version)

    monkeypatch.setattr(cache, "_listed", asking)
    monkeypatch.setattr(torch.cuda, "set_sync_debug_mode", lambda _: None)
    monkeypatch.setattr(gpu_check, "SEARCH", {**gpu_check.SEARCH, "dtype": "float32"})
    assert gpu_check.questions("mhe_mul", "cpu") == (
        f"cache.py {found}, fairseq 0.00 a step",
        holds,
    )


@pytest.mark.parametrize(("loss", "holds"), [(8.8, "yes"), (12.1, "NO"), (float("nan"), "NO")])
def test_a_model_that_learned_nothing_is_found(
    loss: float, holds: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("subprocess.run", lambda *_, **__: Mock(returncode=0))
    (tmp_path / "bf16").mkdir()
    table = json.dumps([{"attention": "mha", "valid_loss": loss}])
    (tmp_path / "bf16" / "table.json").write_text(table)
    assert gpu_check.trained("bf16", [], tmp_path)[0][-1] == holds


def test_a_command_that_fails_is_said(tmp_path: Path) -> None:
    ((check, what, found, holds),) = gpu_check.trained("bf16", ["--no-such-option"], tmp_path)
    assert (check, what, holds) == ("training, bf16", "quickstart", "NO")
    log = tmp_path / "bf16.log"
    assert found == f"exit status 2: see {log}"
    assert "no-such-option" in log.read_text()


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


def test_the_script_hands_on_all_words(sandbox: Sandbox) -> None:
    sandbox.python("python3", "3.12")
    done = sandbox.run("--cpu", "--out", "two words", script="scripts/gpu_check.sh")
    both = [["ran", "-P", "-m", name, "--cpu", "--out", "two words"] for name in MODULES]
    expected = [word for words in both for word in words]
    assert done.stdout.splitlines() == expected, done.stderr
