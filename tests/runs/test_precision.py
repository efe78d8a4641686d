"""The precision is what was asked for, or what is fast on this machine."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from fairseq_mhe.common import cpu, system
from fairseq_mhe.runs import precision
from fairseq_mhe.runs.precision import AUTO, chosen, fastest
from fairseq_mhe.runs.train import training_arguments
from tests.fixtures.runs import open_run, settings
from tests.runs.test_training import CPU, PLACES


@pytest.mark.parametrize(
    ("flags", "expected"),
    [
        ("fpu avx512f avx512_bf16", "bf16"),
        ("amx_tile amx_bf16", "bf16"),
        ("avx512f avx512_vnni", "float32"),
        ("", "float32"),
    ],
)
def test_a_cpu_is_asked_for_its_instructions(
    monkeypatch: pytest.MonkeyPatch, flags: str, expected: str
) -> None:
    monkeypatch.setattr(cpu, "cpu_flags", flags.split)
    assert fastest(gpu=False) == expected


def test_linux_tells_them(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "cpuinfo").write_text("model name\t: A\nflags\t\t: fpu amx_bf16\n\nflags\t: x\n")
    monkeypatch.setattr(system, "Path", lambda _: tmp_path / "cpuinfo")
    assert system.cpu_flags() == {"fpu", "amx_bf16"}
    monkeypatch.setattr(system, "Path", lambda _: tmp_path / "elsewhere")
    assert system.cpu_flags() == frozenset()


@pytest.mark.parametrize(("has_it", "expected"), [(True, "bf16"), (False, "fp16")])
def test_a_gpu_trains_in_half_precision(
    monkeypatch: pytest.MonkeyPatch, has_it: bool, expected: str
) -> None:
    monkeypatch.setattr(torch.cuda, "is_bf16_supported", lambda including_emulation: has_it)
    assert fastest(gpu=True) == expected


def test_auto_is_what_is_fast_and_else_what_was_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(precision, "fastest", lambda gpu: "fp16" if gpu else "bf16")
    assert [chosen(AUTO, gpu) for gpu in (True, False)] == ["fp16", "bf16"]
    assert chosen("float32", True) == "float32"


def test_it_is_a_setting_that_fairseq_is_told(tmp_path: Path) -> None:
    run = open_run(tmp_path / "r", settings(bf16=True), PLACES)
    words = training_arguments(run, CPU)
    assert {"--bf16", "--cpu", "adam_fused"} <= set(words)
    assert CPU.describe("bf16") == f"{CPU.describe()}, bf16"
