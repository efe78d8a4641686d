"""Runs kept without their models and the corpus' text give the same table, and train nothing."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from fairseq_mhe import cli
from fairseq_mhe.experiments.table_run import TableRun
from fairseq_mhe.prepare.data_folder import open_prepared
from fairseq_mhe.runs.devices import choose_device
from fairseq_mhe.runs.run import read_run
from tests.fixtures.trained import table_words

NAMES = ("tiny-mha-seed1", "tiny-mhe_mul-seed1")


def kept(table: Path, out: Path) -> int:
    return cli.main(["keep", *(str(table / name) for name in NAMES), "--out", str(out)])


def test_the_table_comes_out_again(
    miniature: Path, table: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    runs = tmp_path / "kept runs"
    assert kept(table, runs) == 0
    files = {path.name for path in runs.rglob("*") if path.is_file()}
    assert files == {
        *("config.json", "status.json", "metrics.json", "counts.json"),
        *("hypotheses.txt", "generation.json", "scores.json"),
    }
    texts = [path.read_text() for path in runs.rglob("*") if path.is_file()]
    references = (table / NAMES[0] / "test" / "references.txt").read_text().split("\n")
    assert not any(references[0] in text for text in texts)
    # Not only --finished-only: the same command, which trains what is not done, finds it all done.
    assert cli.main(["run-table", *table_words(miniature, runs, rows=("tiny",))]) == 0
    assert not list(runs.rglob("*.pt"))
    found, before = (json.loads((f / "table.json").read_text()) for f in (runs, table))
    assert found == [cell for cell in before if cell["row"] == "tiny"]
    names = ("sources", "references", "hypotheses")
    for name in names:
        path = Path(NAMES[1], "test", f"{name}.txt")
        assert (runs / path).read_text() == (table / path).read_text()


def test_another_sacrebleu_scores_anew(miniature: Path, table: Path, tmp_path: Path) -> None:
    kept(table, tmp_path)
    run = read_run(tmp_path / NAMES[0])
    scores, status = run.subset("test") / "scores.json", run.folder / "status.json"
    before = scores.read_text()
    scores.write_text(before.replace('"sentences": ', '"sentences": 9'))
    made_by = json.loads(status.read_text())
    made_by["steps"]["score test"]["key"] = "of another sacreBLEU"
    status.write_text(json.dumps(made_by))
    TableRun([[run]], open_prepared(miniature), tmp_path).work(choose_device(1, gpu=False))
    assert scores.read_text() == before


def test_another_tokeniser_scores_anew_and_trains_nothing(
    miniature: Path, table: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A kept run has its translations, and no model to begin again from."""
    kept(table, tmp_path)
    monkeypatch.setattr("fairseq_mhe.runs.training.train", lambda *_: pytest.fail("trained"))
    scores = tmp_path / NAMES[0] / "test" / "scores.json"
    before = scores.read_text()
    words = table_words(miniature, tmp_path, rows=("tiny",))
    assert cli.main(["run-table", *words, "--bleu-tokenizer", "char"]) == 0
    assert "|tok:char|" in scores.read_text()
    assert cli.main(["run-table", *words]) == 0
    assert scores.read_text() == before
    place = words.index("--rows")
    line = ["train", "tiny", "mha", "--evaluate", *words[:place], *words[place + 2 :]]
    assert cli.main([*line, "--bleu-tokenizer", "char"]) == 0
    assert "|tok:char|" in scores.read_text()


def test_another_seed_of_resampling_scores_anew(
    miniature: Path, table: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept(table, tmp_path)
    words = ["run-table", *table_words(miniature, tmp_path, rows=("tiny",))]
    found = []
    for seed in ("12345", "7", "12345"):
        monkeypatch.setenv("SACREBLEU_SEED", seed)
        assert cli.main(words) == 0
        scores = (tmp_path / name / "test" / "scores.json" for name in NAMES)
        found.append([json.loads(path.read_text())["chrf"] for path in scores])
    assert found[0] == found[2]
    by_default, by_seven = ([chrf.pop("confidence") for chrf in chrfs] for chrfs in found[:2])
    assert found[0] == found[1]
    assert by_default != by_seven


def test_kept_again_it_stays(table: Path, tmp_path: Path) -> None:
    assert kept(table, tmp_path) == kept(table, tmp_path) == 0


def test_refusals(table: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """One line each; and of several runs none is kept where one cannot be."""
    unfinished = tmp_path / "runs" / NAMES[0]
    shutil.copytree(table / NAMES[0], unfinished, ignore=shutil.ignore_patterns("scores.json"))
    good, out = str(table / NAMES[1]), tmp_path / "out"
    assert cli.main(["keep", good, str(unfinished), "--out", str(out)]) == 2
    told = capsys.readouterr().err
    assert f"{unfinished} is not finished: it has no scores; run the command that made it" in told
    assert not out.exists()

    assert cli.main(["keep", str(tmp_path), "--out", str(out)]) == 2
    assert "is no run folder: it has no config.json" in capsys.readouterr().err

    other = tmp_path / "others" / NAMES[1]
    shutil.copytree(table / NAMES[1], other)
    config = json.loads((other / "config.json").read_text())
    config["settings"]["training"]["updates"] += 1
    (other / "config.json").write_text(json.dumps(config))
    assert cli.main(["keep", good, "--out", str(out)]) == 0
    assert cli.main(["keep", str(other), "--out", str(out)]) == 2
    assert "is there and of other settings: name another --out" in capsys.readouterr().err


def test_two_trainings_of_one_name_are_not_mixed(
    table: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Of the same settings too: one would replace the other, or part of it."""
    one = Path(shutil.copytree(table / NAMES[0], tmp_path / "one" / NAMES[0]))
    other = Path(shutil.copytree(one, tmp_path / "other" / NAMES[0]))
    status = json.loads((other / "status.json").read_text())
    status["steps"]["train"]["finished"] = "2001-01-01T00:00:00+0000"
    (other / "status.json").write_text(json.dumps(status))
    out = tmp_path / "kept"
    assert cli.main(["keep", str(one), str(other), "--out", str(out)]) == 2
    told = f"{one} and {other} would both be kept as {out / NAMES[0]}"
    assert told in capsys.readouterr().err
    assert not out.exists()
    assert cli.main(["keep", str(one), "--out", str(out)]) == 0
    before = (out / NAMES[0] / "status.json").read_bytes()
    assert cli.main(["keep", str(other), "--out", str(out)]) == 2
    assert "is there and of another training: name another --out" in capsys.readouterr().err
    assert (out / NAMES[0] / "status.json").read_bytes() == before


def test_what_comes_later_is_kept_too(miniature: Path, table: Path, tmp_path: Path) -> None:
    run = Path(shutil.copytree(table / NAMES[0], tmp_path / NAMES[0]))
    keep = ["keep", str(run), "--out", str(tmp_path / "kept")]
    assert cli.main(keep) == 0
    (run / "test" / "comet.json").write_text('{"score": 0.5}')
    (run / "metrics.json").write_text((run / "metrics.json").read_text() + "\n")
    assert cli.main(keep) == 0
    for name in ("test/comet.json", "metrics.json"):
        kept_file = tmp_path / "kept" / NAMES[0] / name
        assert kept_file.read_bytes() == (run / name).read_bytes()


def test_the_table_is_of_the_scores_that_are_there(
    miniature: Path, table: Path, tmp_path: Path
) -> None:
    runs = tmp_path / "runs"
    assert kept(table, runs) == 0
    line = ["run-table", *table_words(miniature, runs, rows=("tiny",)), "--finished-only"]
    assert cli.main(line) == 0
    before = (runs / "table.md").stat().st_mtime_ns
    assert cli.main(line) == 0
    assert (runs / "table.md").stat().st_mtime_ns == before
    for name in NAMES:
        (runs / name / "test" / "comet.json").write_text('{"score": 0.5, "model": "a"}')
    assert cli.main(line) == 0
    assert [cell["comet"] for cell in json.loads((runs / "table.json").read_text())] == [0.5, 0.5]
