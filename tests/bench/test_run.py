"""The command from end to end on minuscule settings; nothing here depends on speed."""

import argparse
import json
import os
import signal
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest

from fairseq_mhe.bench import run as command
from fairseq_mhe.bench.training import TrainingBenchmark
from fairseq_mhe.common.arguments import Parser
from fairseq_mhe.common.errors import UserError
from tests.bench.conftest import STOCK, small

OPTIONS = ["--row", "tiny", "--attention", "mhe_mul", "--device", "cpu", "--threads", "1"]
#: For each benchmark options that give it two cells, and the facts that its results have.
TWO_CELLS = {
    "attention": "--places decoder,cross --lengths 6 --tokens 12 --seconds 0.001",
    "training": "--max-tokens 64 --batches 1 --dtype float32,bf16 --vocab-size 64",
    "generation": "--beams 1,2 --lengths 4 --batch-sizes 2 --profile --vocab-size 64",
}
FACTS: dict[str, set[str]] = {
    "attention": set(),
    "training": {"units", "first_units", "operations", "limit"},
    "generation": {"units", "first_units", "operators", "waits"},
}
ONE_CELL = "--lengths 3 --beams 2 --batch-sizes 1"


def run(*words: str) -> int:
    parser = Parser()
    command.add_arguments(parser)
    return command.run(parser.parse_args(words, argparse.Namespace(typed=["bench", *words])))


@pytest.mark.parametrize("bench", TWO_CELLS)
def test_each_benchmark_writes_complete_results(
    bench: str, tmp_path: Path, inline_workers: None, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "a folder" / "results.json"
    words = ["--repetitions", "2", "--out", str(out)]
    assert run(bench, *OPTIONS, *TWO_CELLS[bench].split(), *words) == 0
    assert sorted(path.name for path in out.parent.iterdir()) == ["results.json", "results.md"]
    results = json.loads(out.read_text())
    assert f"fairseq-mhe bench {bench} --row tiny" in results["command"]
    assert f"--out '{out}'" in results["command"]
    assert len(results["cells"]) == 2
    expected = {"seconds", "first_seconds", "peak_bytes", "weight_bytes"} | FACTS[bench]
    for entry in results["cells"]:
        assert list(entry["variants"]) == ["stock", "stock_tuned", "mhe_mul"]
        for result in entry["variants"].values():
            assert result.keys() == expected
            for seconds in result["seconds"].values():
                assert len(seconds) == 2
                assert min(seconds) > 0
        weights = {name: result["weight_bytes"] for name, result in entry["variants"].items()}
        assert weights["mhe_mul"] < weights["stock"] == weights["stock_tuned"]
    assert capsys.readouterr().out == out.with_suffix(".md").read_text() + "\n"


def test_a_process_of_its_own_measures_and_its_death_is_an_error() -> None:
    """It has the fixes of fairseq: without them stock looks for a TPU in bf16."""
    cell = {"max_tokens": 64, "dtype": "bf16"}
    options = small(TrainingBenchmark, batches=1)
    with command.workers(TrainingBenchmark, [STOCK], options) as started:
        result = command.measure(started, cell, 1, lambda _: None)
        assert result["stock"]["seconds"]["total"][0] > 0
        (process,) = started["stock"]._processes.values()
        assert process.pid != os.getpid()
        # `end_with_parent` ran, so that the process will not outlive a killed command.
        handler = started["stock"].submit(signal.getsignal, signal.SIGINT).result()
        assert handler is signal.SIG_IGN
        os.kill(process.pid, signal.SIGKILL)
        process.join()
        with pytest.raises(UserError, match="the process of stock was killed"):
            command.measure(started, cell, 1, lambda _: None)


def test_each_round_times_every_variant_and_begins_with_another() -> None:
    turns = []

    def submit(_call: Any, variant: str, method: str, *_: Any) -> Mock:
        if method == "turn":
            turns.append(variant)
        return Mock(result=lambda: {"total": 1.0})

    workers = {name: Mock(submit=submit) for name in ("stock", "mha", "sha")}
    results = command.measure(workers, {}, 3, lambda _: None)
    assert " ".join(turns) == "stock mha sha mha sha stock sha stock mha"
    assert results["sha"]["seconds"] == {"total": [1.0] * 3}


def test_a_stopped_run_keeps_what_it_measured_and_resumes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    measured, stops = [], [5]

    def measure(workers, cell, repetitions, progress):
        if cell["length"] in stops:
            raise KeyboardInterrupt
        measured.append(cell["length"])
        return {"stock": {"seconds": {"total": [1.0]}}}

    monkeypatch.setattr(command, "measure", measure)
    out = tmp_path / "r.json"
    words = [*OPTIONS, *f"--lengths 3,4,5 --beams 2 --batch-sizes 1 --out {out}".split()]
    with pytest.raises(KeyboardInterrupt):
        run("generation", *words)
    cells = json.loads(out.read_text())["cells"]
    assert [entry["cell"]["length"] for entry in cells] == [3, 4]
    assert out.with_suffix(".md").read_text().count("###") == 2
    stops.clear()
    for expected in ([3, 4, 5], [3, 4, 5, 3, 4, 5]):  # a complete report is measured anew
        run("generation", *words)
        assert measured == expected
    with pytest.raises(UserError, match=r"r\.json .* another command"):
        run("generation", *words, "--seed", "2")
    out.unlink()
    with pytest.raises(UserError, match=r"r\.md"):
        run("generation", *words)


def test_a_baseline_tells_which_ratios_moved(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Exit status 1 if quartiles before and now do not overlap; stock is the measure itself."""
    times: dict[str, list[float]] = {}

    def measure(*_: Any) -> dict[str, Any]:
        return {name: {"seconds": {"total": seconds}} for name, seconds in times.items()}

    monkeypatch.setattr(command, "measure", measure)
    before, now = tmp_path / "before.json", tmp_path / "now"
    words = [*OPTIONS, *ONE_CELL.split(), "--repetitions", "4"]
    # All speeds are 2.00 [1.75, 2.25] at first.
    usual = [4 / 2.5, 4 / 2.25, 4 / 1.75, 4 / 1.5]
    names = ("same", "faster", "slower")
    times.update(dict.fromkeys(names, usual), stock=[4.0] * 4)
    assert run("generation", *words, "--out", str(before)) == 0
    compare = [*words, "--baseline", str(before), "--out", str(now)]
    times.update(stock=[8.0] * 4, **{name: [2 * t for t in usual] for name in names})
    assert run("generation", *compare) == 0, "a machine half as fast changes no ratio"
    times["same"] = [t / 1.05 for t in times["same"]]  # within the quartiles
    times["faster"] = [t / 1.5 for t in times["faster"]]
    times["slower"] = [t * 1.5 for t in times["slower"]]
    capsys.readouterr()
    assert run("generation", *compare) == 1
    rows = [line.split("|") for line in capsys.readouterr().out.splitlines() if "%" in line]
    verdicts = {row[2].strip(): (row[-3].strip(), row[-2].strip()) for row in rows}
    assert verdicts == {
        "same": ("+5.0%", ""),
        "faster": ("+50.0%", "faster"),
        "slower": ("-33.3%", "slower"),
    }
    with pytest.raises(UserError, match="row tiny"):
        run("generation", *words, "--row", "small", "--baseline", str(before))
