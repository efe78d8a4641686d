"""The studies of converted models, from finished runs to their reports, on a quickstart of 200 pairs."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from fairseq_mhe import cli
from fairseq_mhe.checkpoints.checkpoint import open_source
from fairseq_mhe.experiments import studies
from fairseq_mhe.models.packed import int8_available
from fairseq_mhe.prepare.data_folder import DataFolder
from fairseq_mhe.runs.devices import Device
from fairseq_mhe.runs.run import Run, open_run
from fairseq_mhe.runs.training import training_arguments
from tests.experiments.test_quickstart import Finished, finished, run_folder  # noqa: F401
from tests.fixtures.runs import TRAINING, settings


@pytest.fixture
def source(finished: Finished) -> Path:  # noqa: F811
    """The quickstart's MHA run."""
    assert finished.returncode == 0, finished.stderr
    return run_folder(finished.out, "mha")


def changed(folder: Path) -> dict[str, int]:
    """When each file was written last."""
    return {
        str(p): p.stat().st_mtime_ns
        for p in folder.rglob("*")
        if p.suffix in (".pt", ".txt") and p.is_file()
    }


def twice(command: list[str], out: Path) -> None:
    """Run a study, and again, which makes nothing anew."""
    assert cli.main([*command, "--out", str(out), "--cpu"]) == 0
    before = changed(out)
    assert cli.main([*command, "--out", str(out), "--cpu"]) == 0
    assert changed(out) == before


def reports(out: Path, name: str) -> dict:
    """The JSON, after a look at the other two files."""
    found = json.loads((out / f"{name}.json").read_text())
    text = (out / f"{name}.md").read_text()
    for fact in ("processor", "torch", "date", "command", "nrefs:1"):
        assert fact in text
    assert found["command"].startswith("fairseq-mhe ")
    assert (out / f"{name}.png").read_bytes().startswith(b"\x89PNG")
    return found


def test_collaborative_curve(source: Path, tmp_path: Path) -> None:
    out = tmp_path / "curve"
    words = [
        "--dims",
        "128",
        "--series",
        "decomposed,fine-tuned",
        "--iterations",
        "5",
        "--sentences",
        "20",
    ]
    twice(["collaborative-curve", "--run", str(source), *words, "--fraction", "0.1"], out)
    found = reports(out, "collaborative-curve")
    assert set(found["bleu"]) == {"decomposed", "fine-tuned"}
    layers = found["conversions"]["128"]["layers"]
    assert len(layers) == 6
    assert all(
        0 < layer["error"] < 1e-9 and layer["seconds"] >= 0 for layer in layers
    )  # D = n d is exact
    exact = (out / "decomposed-D128-seed1" / "test" / "hypotheses.txt").read_text()
    assert exact == (source / "test" / "hypotheses.txt").read_text()
    start, tuned = (
        open_source(out / f"{name}-D128-seed1" / "model.pt")
        for name in ("decomposed", "fine-tuned")
    )
    assert (
        start.state["optimizer_history"][-1]["num_updates"],
        tuned.options["collaborative_dim"],
    ) == (20, 128)
    assert tuned.state["optimizer_history"][-1]["num_updates"] == 2  # a tenth of 20
    near = [
        (tuned.model.state_dict()[n] - v).abs().max()
        for n, v in start.model.state_dict().items()
        if "proj" in n
    ]
    assert max(near) < 0.1, "it did not begin with the decomposed weights"


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


def test_engines(source: Path, tmp_path: Path) -> None:
    out = tmp_path / "engines"
    mhe = run_folder(source.parent, "mhe_mul")
    twice(
        [
            "compare-engines",
            "--mha",
            str(source),
            "--mhe",
            str(mhe),
            "--repetitions",
            "1",
            "--threads",
            "1",
        ],
        out,
    )
    engines = reports(out, "engines")["engines"]
    assert {name: result["status"] for name, result in engines.items()} == dict.fromkeys(
        engines, "ok"
    )
    assert len(engines) == (11 if int8_available() else 9)
    assert engines["stock"]["relative"]["median"] == 1
    bleu = {name: result["bleu"]["score"] for name, result in engines.items()}
    assert bleu["stock"] == pytest.approx(bleu["fairseq_mhe mha float32"], abs=0.01)
    sizes = [
        engines[f"CTranslate2 mhe_mul{name}"]["file_bytes"]
        for name in (" float32", " shared heads float32", " int8")
    ]
    assert sizes[0] > sizes[1] > sizes[2]
    scores = json.loads((source / "test" / "scores.json").read_text())
    assert bleu["fairseq_mhe mha float32"] == pytest.approx(scores["bleu"]["score"], abs=0.01)


def test_a_run_that_starts_from_weights_says_so_to_fairseq(tmp_path: Path) -> None:
    start = tmp_path / "start.pt"
    torch.save({}, start)
    extra = {"options": ["--collaborative-dim", "16"], "start": "hash"}
    run = open_run(
        tmp_path / "run", {**settings("collaborative"), **extra}, {"data": "d", "start": str(start)}
    )
    data = DataFolder(tmp_path, ("en", "de"))
    words = training_arguments(run, data, Device(False, 1, 1))
    assert words[words.index("--collaborative-dim") + 1] == "16"
    assert words[words.index("--finetune-from-model") + 1] == str(start)
    plain = open_run(tmp_path / "plain", settings("mha"), {"data": "d"})
    assert "--finetune-from-model" not in training_arguments(plain, data, Device(False, 1, 1))


def test_share() -> None:
    short = studies.share(
        replace(TRAINING, updates=1000, warmup_updates=100, average=3), 0.2, lr=0.01
    )
    assert (short.updates, short.warmup_updates, short.checkpoints, short.lr) == (200, 20, 5, 0.01)
    assert studies.share(TRAINING, 0.0001, lr=None).updates == 1
    assert studies.share(TRAINING, 0.5, lr=None).lr == TRAINING.lr


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["collaborative-curve", "--run", "RUN"], "is not finished: it has no model.pt"),
        (["uptrain", "--runs", "DIR", "--seeds", "1"], "is not finished: it has no model.pt"),
        (["uptrain", "--runs", "DIR", "--seeds", "9"], "is no run folder"),
        (
            ["compare-engines", "--mha", "RUN", "--mhe", "RUN"],
            "is not finished: it has no model.pt",
        ),
    ],
)
def test_runs_that_are_not_there_are_one_line(
    make_run: Callable[..., Run],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    words: list[str],
    message: str,
) -> None:
    run = make_run("mha", 0)
    places = {"RUN": str(run.folder), "DIR": str(tmp_path)}
    assert (
        cli.main([places.get(word, word) for word in words] + ["--out", str(tmp_path / "out")]) == 2
    )
    error = capsys.readouterr().err
    assert re.fullmatch(rf"fairseq-mhe [a-z-]+: error: .*{message}.*\n", error)


def test_no_conversion_to_another_width_than_heads_can_share(
    finished: Finished,  # noqa: F811
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    words = [
        "--run",
        str(run_folder(finished.out, "mha")),
        "--dims",
        "18",
        "--series",
        "mha",
        "--cpu",
    ]
    assert cli.main(["collaborative-curve", *words, "--out", str(tmp_path / "out")]) == 2
    assert "4 heads cannot share a key width of 18" in capsys.readouterr().err
