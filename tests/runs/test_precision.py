"""The precision is what is fast here, or what was asked for, or what a folder began with."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from fairseq_mhe.common import system
from fairseq_mhe.common.errors import UserError
from fairseq_mhe.runs import precision
from fairseq_mhe.runs.language_runs import LanguageRun
from fairseq_mhe.runs.precision import AUTO, chosen, fastest, of_language_model, told
from fairseq_mhe.runs.recipes import QUICKSTART
from fairseq_mhe.runs.run import open_run, plan_run
from fairseq_mhe.runs.training import training_arguments
from tests.fixtures.runs import settings
from tests.runs.test_training import CPU, DATA


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
    monkeypatch.setattr(precision, "cpu_flags", lambda: frozenset(flags.split()))
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


def test_a_folder_goes_on_as_it_began(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(precision, "fastest", lambda gpu: "bf16")
    assert chosen(AUTO, False, tmp_path) == "bf16"
    assert chosen("fp16", False, tmp_path) == "fp16"
    LanguageRun(tmp_path / "a", {"recipe": {}}, 1).claim()
    assert chosen(AUTO, False, tmp_path) == "bf16", "that is a run of another sort"
    made = open_run(tmp_path / "r", settings(), {})  # in float32, as all were once
    assert chosen(AUTO, False, tmp_path) == "float32"
    faster = settings(precision="bf16")
    with pytest.raises(UserError, match=r"\(training precision: float32, now bf16\)"):
        plan_run(made.folder, faster, {})
    again = plan_run(made.folder, faster, {}, any_precision=True)
    assert again.config == made.config


def test_a_language_models_folder_goes_on_as_it_began(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(precision, "fastest", lambda gpu: "bf16")
    fast, plain = (
        ({"precision": "bf16"}, ["--optimizer", "adam_fused", "--bf16"]),
        ({}, ["--optimizer", "adam"]),
    )
    one, other = tmp_path / "one", tmp_path / "other"
    assert of_language_model(AUTO, False, one) == fast
    LanguageRun(one, {"recipe": {}, "seed": 1}, 1).claim()
    assert of_language_model(AUTO, False, one) == of_language_model(AUTO, False, other) == plain
    LanguageRun(other, {"recipe": {}, "seed": 1, **fast[0]}, 1).claim()
    assert of_language_model(AUTO, False, other) == fast
    assert of_language_model("float32", False, other) == plain
    for folder, wanted, message in (
        (other, {"seed": 1}, "'bf16', not 'float32'"),
        (one, {"seed": 1, **fast[0]}, "'float32', not 'bf16'"),
    ):
        with pytest.raises(UserError, match=f"run with precision {message}: name another --out"):
            LanguageRun(folder, wanted, 1).claim()
    (one / "config.json").write_text('{"precision": 16}')
    with pytest.raises(UserError, match=r"config\.json"):
        of_language_model(AUTO, False, one)


def test_it_is_a_setting_that_fairseq_is_told(tmp_path: Path) -> None:
    assert "precision" not in QUICKSTART.training.settings()
    run = open_run(tmp_path / "r", settings(precision="bf16"), {})
    words = training_arguments(run, DATA, CPU)
    assert ("--bf16" in words, "--cpu" in words) == (True, True)
    assert CPU.describe("bf16") == f"{CPU.describe()}, bf16"


def test_runs_that_differ_are_named(tmp_path: Path) -> None:
    one = open_run(tmp_path / "one", settings(), {})
    two = open_run(tmp_path / "two", settings(precision="bf16"), {})
    assert told([one]) == "float32"
    assert told([one, two, one]) == "float32: one, one; bf16: two"
