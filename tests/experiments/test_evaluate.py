"""``train``, ``evaluate`` and ``score``: output, refusals, and no work done twice."""

import json
import re
import shutil
import subprocess
import sys
from dataclasses import asdict
from pathlib import Path

import pytest

from fairseq_mhe import cli
from fairseq_mhe.common.arguments import as_words
from fairseq_mhe.prepare.data_folder import open_data
from fairseq_mhe.report.significance import compare
from fairseq_mhe.runs.job import read_job
from fairseq_mhe.runs.scoring import score
from tests.fixtures.refusals import Refused
from tests.fixtures.small_runs import SMALL, run_of
from tests.fixtures.trained import TABLE_SIZE, TABLE_UPDATES, snapshot, table_words
from tests.fixtures.translations import BAD, GOOD, REFERENCES, write

Capture = pytest.CaptureFixture[str]
NAMES = ("tiny-mha-seed1", "tiny-mhe_mul-seed1")


def test_evaluate_prints_known_scores_without_scoring_again(table: Path, capsys: Capture) -> None:
    run = table / "tiny-mha-seed1"
    before = snapshot(run)
    assert cli.main(["evaluate", str(run), "--cpu"]) == 0
    bleu, chrf, tokenised = capsys.readouterr().out.splitlines()
    assert (bleu[:5], chrf[:5], tokenised[:9]) == ("BLEU ", "chrF ", "tokenised")
    assert "tok:13a" in bleu
    assert snapshot(run) == before


def test_translations_are_those_of_fairseq_generate(tmp_path: Path) -> None:
    run = tmp_path / "tiny-mhe_mul-seed1"
    shutil.copytree(run_of("mhe_mul"), run, ignore=shutil.ignore_patterns("test"))
    data = SMALL / "data"
    assert cli.main(["evaluate", str(run), "--data", str(data), "--cpu"]) == 0
    words = [str(data / "bin"), "--user-dir", str(Path(cli.__file__).parent), "--cpu"]
    words += ["--path", str(run / "model.pt"), "--required-batch-size-multiple", "1"]
    words += as_words(asdict(read_job(run).decoding))
    line = [sys.executable, "-m", "fairseq_cli.generate", *words]
    log = subprocess.run(line, capture_output=True, text=True, check=True).stdout
    found = dict(re.findall(r"(?m)^H-(\d+)\t[^\t\n]*\t(.*)$", log))
    expected = open_data(data).processing.plain(found[str(n)] for n in range(len(found)))
    assert (run / "test" / "hypotheses.txt").read_text().splitlines() == list(expected)
    assert len(found) == 20


def test_evaluate_refuses_other_data_and_half_trained_runs(
    table: Path, tmp_path: Path, refused: Refused
) -> None:
    run = table / "tiny-mha-seed1"
    for data in (SMALL / "data", tmp_path / "moved"):
        assert str(data) in refused("evaluate", run, "--cpu", "--data", data)
    half = shutil.copytree(run, tmp_path / run.name)
    for name in ("model.pt", "metrics.json"):
        (half / name).unlink()
    assert f"all {TABLE_UPDATES} updates" in refused("evaluate", half, "--subset", "valid")
    assert "is no run folder" in refused("evaluate", tmp_path, "--cpu")


def test_score_prints_signatures_and_the_comparison(
    tmp_path: Path, capsys: Capture, refused: Refused
) -> None:
    write(tmp_path, ref=REFERENCES, good=GOOD, bad=BAD)
    files = ["--reference", str(tmp_path / "ref"), "--hypothesis", str(tmp_path / "bad")]
    assert cli.main(["score", *files, "--baseline", str(tmp_path / "good")]) == 0
    printed = capsys.readouterr().out
    assert f"BLEU {score(BAD, REFERENCES)['bleu']['score']:.2f} ± " in printed
    assert "nrefs:1|case:mixed|eff:no|tok:13a" in printed
    assert f"PRR {compare([BAD], [GOOD], REFERENCES).prr:.1f} [" in printed
    assert cli.main(["score", *files, "--json", "--language", "de"]) == 0
    assert json.loads(capsys.readouterr().out)["comparison"] is None
    assert "--language xx" in refused("score", *files, "--language", "xx")


def test_runs_without_checkpoints_tabulate(
    miniature: Path, table: Path, tmp_path: Path, refused: Refused, capsys: Capture
) -> None:
    runs = tmp_path / "kept runs"
    for name in NAMES:
        without = shutil.ignore_patterns("*.pt", "checkpoints", ".*")
        shutil.copytree(table / name, runs / name, ignore=without)
    # Without --finished-only, too: the command finds every run finished, and trains nothing.
    assert cli.main(["run-table", *table_words(miniature, runs)]) == 0
    assert not [*runs.rglob("*.pt"), *runs.rglob(".lock")]
    kept_table, first_table = (json.loads((f / "table.json").read_text()) for f in (runs, table))
    assert kept_table == first_table
    for path in (table / NAMES[1] / "test").iterdir():
        assert (runs / NAMES[1] / "test" / path.name).read_bytes() == path.read_bytes()
    error = f"{runs / NAMES[0]} has no model.pt and no checkpoints to average"
    assert cli.main(["run-table", *table_words(miniature, runs, "--subset", "valid")]) == 2
    failures = capsys.readouterr().err
    assert error in failures
    assert "2 of 2 models failed" in failures
    options = ["--data", str(miniature), "--out", str(runs), *TABLE_SIZE]
    assert error in refused("train", "tiny", "mha", *options), "it is not trained again"
    assert not list(runs.rglob("*.pt"))
    shutil.copytree(table / NAMES[0] / "checkpoints", runs / NAMES[0] / "checkpoints")
    trained = read_job(runs / NAMES[0]).metrics.stat().st_mtime_ns
    assert cli.main(["train", "tiny", "mha", *options]) == 0, "the average is made again"
    assert (runs / NAMES[0] / "model.pt").is_file()
    assert read_job(runs / NAMES[0]).metrics.stat().st_mtime_ns == trained
