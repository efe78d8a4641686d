"""Where CTranslate2's int8 may be cut off, who asks for it is told."""

from __future__ import annotations

import os

import pytest

from fairseq_mhe.common import integers

AVX2 = {"avx2", "fma"}


@pytest.mark.parametrize(
    ("flags", "mkl", "exact"),
    [
        (AVX2, None, False),
        (AVX2, "0", False),
        (AVX2, "1", True),
        (AVX2 | {"avx512f"}, None, False),
        (AVX2 | {"avx512f", "avx512_vnni"}, None, True),
        (AVX2 | {"avx_vnni"}, None, True),
        (set(), None, True),  # no x86, or not Linux
    ],
)
def test_who_is_told(
    flags: set[str],
    mkl: str | None,
    exact: bool,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(integers, "cpu_flags", lambda: frozenset(flags))
    monkeypatch.setattr(os, "environ", {} if mkl is None else {"CT2_USE_MKL": mkl})
    assert integers.exact_in_ctranslate2() == exact
    integers.tell_of_ctranslate2(cpu=True)
    told = capsys.readouterr().err
    assert (told == "") == exact
    assert exact or (told.count("\n") == 1 and "CT2_USE_MKL=1" in told)
