"""scripts/wmt14_estimate.py refuses what nothing can be computed of; its numbers: tests/docs."""

from __future__ import annotations

import pytest

import wmt14_estimate as module


@pytest.mark.parametrize(
    "words",
    [
        *(["--share", text] for text in ("0", "-1", "1.5", "nan", "inf", "1e-320", "much", "")),
        *(["--gpus", text] for text in ("0", "-1", "1000000000000", "many")),
    ],
    ids=" ".join,
)
def test_an_absurd_number_is_one_line(
    words: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.argv", ["wmt14_estimate.py", *words])
    with pytest.raises(SystemExit) as ended:
        module.main()
    assert ended.value.code == 2
    *_, line = capsys.readouterr().err.splitlines()
    assert f"error: argument {words[0]}: {words[1]!r} is no " in line
    assert "at least" in line


def test_share_and_gpus_are_those_asked_for(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(module, "ROWS", {"base": module.ROWS["base"]})
    monkeypatch.setattr("sys.argv", ["wmt14_estimate.py", "--share", "1", "--gpus", "10000"])
    module.main()
    printed = capsys.readouterr().out
    assert "assumed: 100% of the data sheet's operations" in printed
    assert "hours on 10000 GPUs" in printed
