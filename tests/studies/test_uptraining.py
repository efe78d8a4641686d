"""Uptraining on a quickstart of 200 pairs: each kind from scratch and from MHA."""

from __future__ import annotations

from pathlib import Path

from tests.studies.checks import reports, twice


def test_uptraining(source: Path, tmp_path: Path) -> None:
    out = tmp_path / "up"
    words = ["--seeds", "1", "--attention", "mhe_mul,mqa", "--fraction", "0.1", "--sentences", "20"]
    twice(["uptrain", "--runs", str(source.parent), *words], out)
    found = reports(out, "uptraining")
    ways = {(s["attention"], s["way"]): s for s in found["summaries"]}
    assert set(ways) == {
        ("mha", "from scratch"),
        ("mhe_mul", "from scratch"),
        ("mhe_mul", "uptrained from MHA"),
        ("mqa", "uptrained from MHA"),  # the quickstart has no mqa
    }
    pair = [
        ways["mhe_mul", way]["attention_parameters"]
        for way in ("from scratch", "uptrained from MHA")
    ]
    assert pair[0] == pair[1]
    assert found["conversions"]["mqa"]["1"]["tried"].keys() == {"fit", "mean"}
    assert ways["mqa", "uptrained from MHA"]["updates"] == 2
