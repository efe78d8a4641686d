"""The check on a GPU: run on the CPU, in tiny sizes, and with faults that it must find."""

from __future__ import annotations

import functools
import json
import shutil
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

import gpu_check
from fairseq_mhe import cli
from fairseq_mhe.attention import KINDS, base, cache
from tests.fixtures.sandbox import Sandbox
from tests.fixtures.trained import Finished

RESULTS = Path(__file__).parents[2] / "results" / "gpu"


def test_a_dry_run_ends_in_one_table(
    finished: Finished,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(gpu_check, "speeds", lambda *_: {})  # tests/bench runs them
    monkeypatch.setattr(gpu_check, "EMBED_DIM", 32)  # a CPU takes long over fp16
    trainings = gpu_check.trainings(out := tmp_path / "out", "cpu")
    for name in trainings:
        shutil.copytree(finished.out, out / name)  # trained already
    assert gpu_check.main(["--cpu", "--out", str(out)]) == 0
    printed, told = capsys.readouterr()
    assert printed == (out / "gpu_check.md").read_text()
    assert "- torch: " in printed
    rows = [
        [cell.strip() for cell in line.strip("|").split("|")]
        for line in printed.split("\n")
        if line.startswith("| ")
    ][2:]
    checks = [check for check, *_ in rows]
    assert list(dict.fromkeys(checks)) == ["parity", *trainings]
    assert [what for check, what, *_ in rows if check == "parity"] == list(KINDS)
    assert {holds for *_, holds in rows} == {"yes"}
    # A run that is stopped has told what it found.
    assert {": ".join(row) for row in rows} <= set(told.splitlines())


def test_on_a_gpu_the_commands_are_ours_too(tmp_path: Path) -> None:
    """With options that they take: parsed, and not run."""
    for commands in gpu_check.trainings, gpu_check.speeds:
        for words in commands(tmp_path, "cuda").values():
            assert cli.build_parser(words[0]).parse_args(words).command == words[0]


@pytest.mark.parametrize("name", ["training", "generation"])
def test_a_benchmark_is_a_row_for_each_kind(name: str) -> None:
    """Of a run on a GPU whose table is kept."""
    cells = json.loads((RESULTS / f"{name}.json").read_text(encoding="utf-8"))["cells"]
    for kind in cells[0]["variants"]:
        row = gpu_check._measured(f"speed, {name}", kind, cells)
        assert f"| {' | '.join(row)} |" in (RESULTS / "gpu_check.md").read_text(encoding="utf-8")
    cells[0]["variants"]["mha"] = {"status": "out of memory"}
    *_, found, holds = gpu_check._measured("", "mha", cells)
    assert "out of memory" in found
    assert holds == "NO"


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


def test_a_model_that_learned_nothing_is_found() -> None:
    model = {"attention": "mha", "tokens_per_second": 1.0, "sentences_per_second": 1.0}
    for loss, holds in ((8.8, "yes"), (12.1, "NO"), (float("nan"), "NO")):
        assert gpu_check._trained("training", {**model, "valid_loss": loss})[-1] == holds


def test_a_command_that_fails_is_said(tmp_path: Path) -> None:
    ((check, what, found, holds),) = gpu_check.tried(("nothing", ["no-such-command"]), tmp_path)
    assert (check, what, holds) == ("nothing", "no-such-command", "NO")
    log = tmp_path / "nothing.log"
    assert found == f"exit status 2: see {log}"
    assert "no-such-command" in log.read_text()


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU: run the script")
def test_without_a_gpu_it_ends_in_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert gpu_check.main(["--out", str(tmp_path / "out")]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.startswith("gpu_check.sh: error: torch sees no GPU here")
    assert captured.err.count("\n") == 1
    assert not (tmp_path / "out").exists()


def test_the_script_hands_on_all_words(sandbox: Sandbox) -> None:
    sandbox.python("python3", "3.12")
    done = sandbox.run("--cpu", "--out", "two words", script="scripts/gpu_check.sh")
    expected = ["ran", "-P", "-m", "gpu_check", "--cpu", "--out", "two words"]
    assert done.stdout.splitlines() == expected, done.stderr
