"""The command from end to end on minuscule settings; nothing here depends on speed."""

import argparse
import json
import os
from dataclasses import FrozenInstanceError
from pathlib import Path
from typing import Any

import pytest

from fairseq_mhe.bench import run as command
from fairseq_mhe.common.arguments import Parser, from_options
from fairseq_mhe.common.errors import UserError
from fairseq_mhe.common.system import cores

_OPTIONS = "--row tiny --attention mhe_mul --device cpu --threads 1"
OPTIONS = _OPTIONS.split()
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


def parsed(*words: str) -> argparse.Namespace:
    parser = Parser()
    command.add_arguments(parser)
    return parser.parse_args(words, argparse.Namespace(typed=["bench", *words]))


def run(*words: str) -> int:
    return command.run(parsed(*words))


@pytest.mark.parametrize("bench", TWO_CELLS)
def test_each_benchmark_writes_complete_results(
    bench: str, tmp_path: Path, inline_workers: None, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "a folder" / "results.json"
    words = ["--repetitions", "2", "--out", str(out)]
    assert run(bench, *OPTIONS, *TWO_CELLS[bench].split(), *words) == 0
    assert sorted(path.name for path in out.parent.iterdir()) == ["results.json", "results.md"]
    results = json.loads(out.read_text())
    assert results["command"].startswith(f"fairseq-mhe bench {bench} --row tiny --attention")
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


def test_a_process_of_its_own_has_the_fixes_of_fairseq() -> None:
    """Without them stock fairseq looks for a TPU in bf16."""
    words = [*OPTIONS, *TWO_CELLS["training"].replace("float32,", "").split()]
    benchmark = command.BENCHMARKS["training"]
    options = from_options(benchmark.options, parsed("training", *words))
    (cell,) = benchmark.cells(options)
    stock = benchmark.variants(options)[:1]
    with command.workers(benchmark, stock, options) as started:
        result = command.measure(started, cell, 1, lambda *_: None)
    assert result["stock"]["units"]


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
    words = f"--lengths 3,4,5 --beams 2 --batch-sizes 1 --out {tmp_path}/r".split()
    with pytest.raises(KeyboardInterrupt):
        run("generation", *OPTIONS, *words)
    cells = json.loads((tmp_path / "r.json").read_text())["cells"]
    assert [entry["cell"]["length"] for entry in cells] == [3, 4]
    assert (tmp_path / "r.md").read_text().count("###") == 2
    stops.clear()
    for expected in ([3, 4, 5], [3, 4, 5, 3, 4, 5]):  # a complete report is measured anew
        run("generation", *OPTIONS, *words)
        assert measured == expected
        assert (tmp_path / "r.md").read_text().count("###") == 3
    monkeypatch.setenv("FAIRSEQ_MHE_CUDA_GRAPHS", "0")
    for words[-1], other in ((f"{tmp_path}/r", "software"), (f"{tmp_path}/r.md", "command, soft")):
        with pytest.raises(UserError, match=f"was measured with another {other}.*: remove"):
            run("generation", *OPTIONS, *words)
    (tmp_path / "r.json").unlink()
    with pytest.raises(UserError, match=r"r\.md has no \.json beside it: remove it"):
        run("generation", *OPTIONS, *words)


def test_a_baseline_tells_which_ratios_moved(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Exit status 1 if quartiles before and now do not overlap; stock is the measure itself."""
    times: dict[str, list[float]] = {}

    def measure(*_: Any) -> dict[str, Any]:
        return {name: {"seconds": {"total": seconds}} for name, seconds in times.items()}

    monkeypatch.setattr(command, "measure", measure)
    before, now = tmp_path / "before.json", tmp_path / "now"
    words = [
        *OPTIONS,
        *["--lengths", "3", "--beams", "2", "--batch-sizes", "1", "--repetitions", "4"],
    ]
    # All speeds are 2.00 [1.75, 2.25] at first.
    usual = [4 / 2.5, 4 / 2.25, 4 / 1.75, 4 / 1.5]
    names = ("same", "faster", "slower")
    times.update(dict.fromkeys(names, usual), stock=[4.0] * 4)
    assert run("generation", *words, "--out", str(before)) == 0
    compare = [*words, "--baseline", str(before), "--out", str(now)]
    times.update(stock=[8.0] * 4, **{name: [2 * t for t in usual] for name in names})
    assert run("generation", *compare) == 0, "a machine half as fast changes no ratio"
    times["faster"] = [t / 1.5 for t in times["faster"]]
    times["slower"] = [t * 1.5 for t in times["slower"]]
    capsys.readouterr()
    assert run("generation", *compare) == 1
    rows = [line.split("|") for line in capsys.readouterr().out.splitlines() if "%" in line]
    verdicts = {row[2].strip(): (row[-3].strip(), row[-2].strip()) for row in rows}
    assert verdicts == {
        "same": ("+0.0%", ""),
        "faster": ("+50.0%", "faster"),
        "slower": ("-33.3%", "slower"),
    }
    for changed, message in (
        (["--row", "small"], "measured with row tiny"),
        (["--repetitions", "2"], "3 --repetitions or more"),
        (["--lengths", "4"], "has none of these measurements, but beam 2, length 3"),
    ):
        with pytest.raises(UserError, match=message):
            run("generation", *words, *changed, "--baseline", str(before))
    with pytest.raises(UserError, match="no results of `bench training`"):
        run("training", *OPTIONS, "--baseline", str(before))


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("generation --lengths 1", "'1' is not a whole number of at least 2"),
        ("generation --lengths 25,1025", "1025 is more than 1,024"),
        ("training --max-tokens 1", "'1' is not a whole number of at least 64"),
        ("generation --row huge", "unknown row 'huge'"),
        ("generation --int8 --dtype bf16", "--int8 and --bf16 are for --device cpu"),
        ("training --device cpu --without-graphs", "--without-graphs is for --device cuda"),
    ],
)
def test_bad_options_are_rejected_before_a_measurement(
    words: str, message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises((UserError, SystemExit)) as error:
        run(*words.split())
    assert message in f"{error.value} {capsys.readouterr().err}"


@pytest.mark.parametrize(("device", "tokens"), [("cpu", (2048, 1024)), ("cuda", (16384, 4096))])
def test_default_batch_sizes_depend_on_the_device(device: str, tokens: tuple[int, int]) -> None:
    attention, training = (
        next(
            iter(benchmark.cells(from_options(benchmark.options, parsed(name, "--device", device))))
        )
        for name, benchmark in command.BENCHMARKS.items()
        if name != "generation"
    )
    assert (attention["length"] * attention["batch"], training["max_tokens"]) == tokens
    assert parsed("attention").threads == int(os.environ.get("OMP_NUM_THREADS") or cores())


def test_options_are_frozen() -> None:
    options = from_options(command.BENCHMARKS["training"].options, parsed("training"))
    with pytest.raises(FrozenInstanceError):
        options.row = "big"
