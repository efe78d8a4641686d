"""The command from end to end on minuscule settings; nothing here depends on speed."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import pytest

from fairseq_mhe.bench import run as command
from fairseq_mhe.common.errors import UserError

_SMALL = "--row tiny --attention mhe_mul --device cpu --threads 1 --vocab-size 64"
SMALL = _SMALL.split()
BENCHMARKS = {
    "attention": "--places decoder,cross_steps --lengths 6 --tokens 12 --seconds 0.001",
    "training": "--max-tokens 64 --batches 1 --dtype float32,bf16",
    "generation": "--beams 1,2 --lengths 4 --batch-sizes 2 --source-length 5",
}
COMMON_KEYS = {
    *("status", "seconds", "median", "quartiles", "relative", "peak_bytes", "weight_bytes"),
    *("multiply_adds", "bytes", "arithmetic_limit", "traffic_limit"),
}
KEYS = {
    "attention": {"kernel"},
    "training": {"units", "rate", "source_tokens", "sentences", "updates", "padding"},
    "generation": {"units", "rate", "cache_bytes", "encoder_output_bytes"},
}


def run(*words: str) -> None:
    parser = argparse.ArgumentParser()
    command.add_arguments(parser)
    command.run(parser.parse_args(words, argparse.Namespace(typed=["bench", *words])))


@pytest.mark.parametrize("bench", BENCHMARKS)
def test_from_end_to_end(
    bench: str, tmp_path: Path, workers_here: None, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "a folder" / "results.json"
    run(bench, *SMALL, *BENCHMARKS[bench].split(), "--repetitions", "2", "--out", str(out))
    assert sorted(path.name for path in out.parent.iterdir()) == ["results.json", "results.md"]
    results = json.loads(out.read_text())
    assert results["command"].startswith(f"fairseq-mhe bench {bench} --row tiny --attention")
    assert f"--out '{out}'" in results["command"]
    assert len(results["cells"]) == 2
    for entry in results["cells"]:
        stock, ours = entry["variants"]["stock"], entry["variants"]["mhe_mul"]
        for result in (stock, ours):
            assert result.keys() == COMMON_KEYS | KEYS[bench]
            for seconds in result["seconds"].values():
                assert len(seconds) == 2
                assert min(seconds) > 0
        assert stock["relative"] == {"median": 1.0, "low": 1.0, "high": 1.0}
        assert stock["arithmetic_limit"] == stock["traffic_limit"] == 1.0
        assert ours["relative"]["low"] <= ours["relative"]["median"] <= ours["relative"]["high"]
        assert ours["arithmetic_limit"] > 1
        assert ours["weight_bytes"] < stock["weight_bytes"]
    assert capsys.readouterr().out == out.with_suffix(".md").read_text() + "\n"


def fake_measure(log: list[Any], stop_after: int | None = None):
    def measure(workers, cell, repetitions, progress):
        if len(log) == stop_after:
            raise KeyboardInterrupt
        log.append(cell)
        times = {"seconds": {"total": [1.0]}, "median": {"total": 1.0}}
        times["quartiles"] = {"total": [1.0, 1.0]}
        return {name: {"status": "ok", "relative": None, **times} for name in workers}

    return measure


def test_a_stopped_run_goes_on_and_a_finished_one_is_measured_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    words = f"--lengths 3,4,5 --beams 2 --batch-sizes 1 --out {tmp_path}/r".split()
    words = ["generation", *SMALL, *words]
    log: list[Any] = []
    monkeypatch.setattr(command, "measure", fake_measure(log, stop_after=2))
    with pytest.raises(KeyboardInterrupt):
        run(*words)
    assert [path.name for path in tmp_path.iterdir()] == ["r.partial.json"]
    monkeypatch.setattr(command, "measure", fake_measure(log))
    run(*words)
    assert [cell["length"] for cell in log] == [3, 4, 5]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["r.json", "r.md"]
    assert [
        entry["cell"]["length"]
        for entry in json.loads((tmp_path / "r.json").read_text())["cells"]
    ] == [3, 4, 5]
    run(*words)
    assert [cell["length"] for cell in log[3:]] == [3, 4, 5]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--row", "huge"), "unknown row 'huge'"),
        (("--lengths", "1"), "a length of 1 does not fit"),
        (("--lengths", "25,1025"), "a length of 1025 does not fit: lengths go from 2 to 1024"),
        (("--source-length", "2000"), "a length of 2000 does not fit"),
        (
            ("--int8", "--dtype", "bf16"),
            "--int8 and --bf16 are for --device cpu and --dtype float32",
        ),
    ],
)
def test_what_cannot_work_ends_before_anything_is_measured(
    words: tuple[str, ...], message: str
) -> None:
    with pytest.raises(UserError, match=message):
        run("generation", *words)
