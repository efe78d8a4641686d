"""The check on a GPU: run on the CPU, in tiny sizes, and with faults that it must find."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

import gpu_check
from fairseq_mhe import cli
from fairseq_mhe.attention import KINDS, base
from tests.fixtures.sandbox import Sandbox
from tests.fixtures.trained import Finished


def test_a_dry_run_ends_in_one_table(
    finished: Finished,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    commands = gpu_check.commands(out := tmp_path / "out", "cpu")
    commands.pop("speed, training")  # of the two benchmarks one is enough
    monkeypatch.setattr(gpu_check, "commands", lambda *_: commands)
    monkeypatch.setattr(gpu_check, "EMBED_DIM", 32)  # a CPU takes long over fp16
    shutil.copytree(finished.out, out / "quickstart")  # trained already
    assert gpu_check.main(["--cpu", "--out", str(out)]) == 0
    printed = capsys.readouterr().out
    assert printed == (out / "gpu_check.md").read_text()
    rows = [
        [cell.strip() for cell in line.strip("|").split("|")] for line in printed.split("\n")[4:-1]
    ]
    checks = [check for check, *_ in rows]
    assert dict.fromkeys(checks) == dict.fromkeys(("parity", *commands))
    assert [what for check, what, *_ in rows if check == "parity"] == list(KINDS)
    assert {holds for *_, holds in rows} == {"yes"}


def test_on_a_gpu_the_commands_are_ours_too(tmp_path: Path) -> None:
    """With options that they take: parsed, and not run."""
    for words in gpu_check.commands(tmp_path, "cuda").values():
        assert cli.build_parser(words[0]).parse_args(words).command == words[0]


def test_a_wrong_kernel_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    attend: Callable[..., Any] = base.attend

    def wrong(*args: Any, scale: float, **given: Any) -> Any:
        return attend(*args, scale=1.01 * scale, **given)

    monkeypatch.setattr(base, "attend", wrong)
    monkeypatch.setattr(gpu_check, "KINDS", ["mha"])
    assert [row[-1] for row in gpu_check.parity("cpu")] == ["NO"]
    # What is no number is no small difference.
    assert gpu_check._apart(torch.tensor([float("nan")]), torch.ones(1)) == float("inf")


def test_a_command_that_fails_is_said(tmp_path: Path) -> None:
    ((check, what, found, holds),) = gpu_check.tried("nothing", ["no-such-command"], tmp_path)
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
