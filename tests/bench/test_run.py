"""The command from end to end on minuscule settings; nothing here depends on speed."""

import argparse
import json
import os
from pathlib import Path

import pytest

from fairseq_mhe.bench import run as command
from fairseq_mhe.common.arguments import Parser
from fairseq_mhe.common.errors import UserError
from fairseq_mhe.common.system import cores

_OPTIONS = "--row tiny --attention mhe_mul --device cpu --threads 1 --vocab-size 64"
OPTIONS = _OPTIONS.split()
#: For each benchmark options that give it two cells, and the facts that its results have.
TWO_CELLS = {
    "attention": "--places decoder,cross --lengths 6 --tokens 12 --seconds 0.001",
    "training": "--max-tokens 64 --batches 1 --dtype float32,bf16",
    "generation": "--beams 1,2 --lengths 4 --batch-sizes 2",
}
FACTS: dict[str, set[str]] = {"attention": set(), "training": {"units"}}
FACTS["generation"] = {"units", "cache_bytes", "encoder_output_bytes"}


def parsed(*words: str) -> argparse.Namespace:
    parser = Parser()
    command.add_arguments(parser)
    return parser.parse_args(words, argparse.Namespace(typed=["bench", *words]))


def run(*words: str) -> None:
    command.run(parsed(*words))


@pytest.mark.parametrize("bench", TWO_CELLS)
def test_each_benchmark_writes_complete_results(
    bench: str, tmp_path: Path, inline_workers: None, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "a folder" / "results.json"
    run(bench, *OPTIONS, *TWO_CELLS[bench].split(), "--repetitions", "2", "--out", str(out))
    assert sorted(path.name for path in out.parent.iterdir()) == ["results.json", "results.md"]
    results = json.loads(out.read_text())
    assert results["command"].startswith(f"fairseq-mhe bench {bench} --row tiny --attention")
    assert f"--out '{out}'" in results["command"]
    assert len(results["cells"]) == 2
    for entry in results["cells"]:
        stock, ours = entry["variants"]["stock"], entry["variants"]["mhe_mul"]
        for result in (stock, ours):
            assert result.keys() == {"seconds", "peak_bytes", "weight_bytes"} | FACTS[bench]
            for seconds in result["seconds"].values():
                assert len(seconds) == 2
                assert min(seconds) > 0
        assert ours["weight_bytes"] < stock["weight_bytes"]
    assert capsys.readouterr().out == out.with_suffix(".md").read_text() + "\n"


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


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("generation --lengths 1", "'1' is not a whole number of at least 2"),
        ("generation --lengths 25,1025", "1025 is more than 1,024"),
        ("training --max-tokens 1", "'1' is not a whole number of at least 64"),
        ("generation --row huge", "unknown row 'huge'"),
        ("generation --int8 --dtype bf16", "--int8 and --bf16 are for --device cpu"),
        (f"training {_OPTIONS} --cuda-graphs", "--cuda-graphs is for --device cuda: leave it o"),
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
        next(iter(command.BENCHMARKS[name].cells(parsed(name, "--device", device))))
        for name in ("attention", "training")
    )
    assert (attention["length"] * attention["batch"], training["max_tokens"]) == tokens
    assert parsed("attention").threads == int(os.environ.get("OMP_NUM_THREADS") or cores())


def test_ctranslate2_runs_in_float16_on_a_gpu_with_our_kinds_too() -> None:
    on_gpu = ["ctranslate2_float16", "mhe_mul_ctranslate2_float16"]
    for device, expected in (("cpu", ["ctranslate2_int8"]), ("cuda", on_gpu)):
        words = f"generation --attention mhe_mul --device {device} --ctranslate2".split()
        variants = command.BENCHMARKS["generation"].variants(parsed(*words))
        assert list(variants) == ["stock", "mhe_mul", *expected]
