"""The table says what the runs say, with the promised keys; what cannot be compared is refused."""

from __future__ import annotations

import csv
import itertools
import json
import re
import statistics
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from PIL import Image
from sacrebleu.metrics import BLEU

from fairseq_mhe import cli
from fairseq_mhe.common.errors import UserError
from fairseq_mhe.common.files import write_json, write_text
from fairseq_mhe.prepare.text import read_lines
from fairseq_mhe.report import plots, significance
from fairseq_mhe.report.results import gather, summarise
from fairseq_mhe.report.translation_table import PAPER, QUICKSTART, write_table
from fairseq_mhe.runs import comet
from fairseq_mhe.runs.job import Job
from tests.fixtures.runs import REFERENCES

MakeRun = Callable[..., Job]
PROMISED = {
    *(
        "attention",
        "attention_parameters",
        "total_parameters",
        "kv_bytes_per_token",
        "signature",
    ),
    *("bleu", "chrf", "prr", "p_value", "tokens_per_second", "sentences_per_second"),
}


@pytest.fixture(autouse=True)
def few_pictures(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Drawing and resampling take most of the time; only these tests look at a picture, and how
    comparisons are made is tested beside.
    """
    monkeypatch.setattr(significance, "RESAMPLES", 100)
    if "picture" not in request.function.__name__:
        monkeypatch.setattr(plots, "save", lambda _, path: write_text(path, ""))


def bleu_of(run: Job) -> float:
    hypotheses = list(read_lines(run.subset("test") / "hypotheses.txt"))
    return BLEU().corpus_score(hypotheses, [REFERENCES]).score


def headings(markdown: str) -> list[str]:
    """Of all tables."""
    lines = markdown.split("\n")
    pairs = itertools.pairwise(lines)
    first = [line for line, rule in pairs if rule.startswith(("|-", "|:"))]
    return [cell.strip() for line in first for cell in line.strip("|").split("|")]


def test_one_object_a_kind_with_means_over_seeds(make_run: MakeRun) -> None:
    """The first seeds are equal, the others are not: the comparison is of all."""
    wrongs = {"mha": (3, 2, 2), "mhe_mul": (3, 15, 16)}
    runs = {
        kind: [make_run(kind, wrong, seed) for seed, wrong in enumerate(each, start=1)]
        for kind, each in wrongs.items()
    }
    mha, mhe = summarise(gather(run.folder for each in runs.values() for run in each))
    assert set(mha) >= PROMISED <= set(mhe)
    assert (mha["attention"], mhe["attention"], mha["seeds"]) == ("mha", "mhe_mul", [1, 2, 3])
    bleus = [bleu_of(run) for run in runs["mha"]]
    assert mha["bleu"] == pytest.approx(statistics.mean(bleus), abs=1e-3)
    assert mha["bleu_deviation"] == pytest.approx(statistics.stdev(bleus), abs=1e-3)
    assert (mha["tokens_per_second"], mha["valid_loss"]) == (2000.0, 6.25)
    assert (mha["prr"], mha["p_value"]) == (100.0, None)
    assert mhe["prr"] == pytest.approx(100 * mhe["bleu"] / mha["bleu"], abs=0.01)
    assert mhe["prr_low"] < mhe["prr"] < mhe["prr_high"]
    assert mhe["p_value"] < 1.0
    assert (mhe["attention_parameters"], mhe["kv_bytes_per_token"]) == (1500, 64)
    (alone,) = summarise(gather([runs["mhe_mul"][0].folder]))
    assert (alone["prr"], alone["p_value"], alone["bleu_deviation"]) == (None, None, None)


@pytest.mark.parametrize(("name", "value"), [("max_update", 41), ("bf16", True)])
def test_only_seeds_of_one_model_belong_together(
    make_run: MakeRun, name: str, value: int | str
) -> None:
    one, other = make_run("mha", 2, seed=1), make_run("mha", 6, seed=2)
    with pytest.raises(UserError, match="are both tiny mha and differ by nothing"):
        gather([one.folder, one.folder])
    config = json.loads((other.folder / "config.json").read_text())
    config["settings"]["options"][name] = value
    write_json(other.folder / "config.json", config)
    with pytest.raises(UserError, match=f"are both tiny mha and differ by {name}, where seeds"):
        gather([one.folder, other.folder])


def test_columns_that_say_nothing_are_left_out(make_run: MakeRun, tmp_path: Path) -> None:
    one, other, base = (
        make_run("mha", 2),
        make_run("mha", 6, seed=2),
        make_run("mha", 2, row="base"),
    )
    for runs, there, absent in (
        ([one], ["attention"], ["row", "sd"]),
        ([one, other], ["attention", "sd"], ["row"]),
        ([one, base], ["row", "attention"], ["sd"]),
    ):
        write_table(gather(run.folder for run in runs), tmp_path, "A title")
        names = headings((tmp_path / "table.md").read_text())
        assert set(there) <= set(names)
        assert not set(absent) & set(names)
    write_table(gather([one.folder]), tmp_path, "One", PAPER)
    absent = ["paper", "COMET", "sd of seeds", "tokenised BLEU", "PRR 95%"]
    assert not set(absent) & set(headings((tmp_path / "table.md").read_text()))
    write_json(one.subset("test") / comet.FILE, {"score": 0.8, "model": comet.MODEL})
    write_table(gather([one.folder]), tmp_path, "One", PAPER)
    text = (tmp_path / "table.md").read_text()
    assert "COMET" in headings(text)
    assert f"COMET: {comet.MODEL}, " in text


def test_a_baseline_that_learned_nothing_is_a_dash_and_a_note(
    make_run: MakeRun, tmp_path: Path
) -> None:
    runs = [make_run("mha", len(REFERENCES)), make_run("mhe_mul", 5)]
    write_table(gather(run.folder for run in runs), tmp_path, "A title")
    found = json.loads((tmp_path / "table.json").read_text())
    assert [cell[name] for cell in found for name in ("prr", "prr_low", "p_value")] == [
        None
    ] * 6
    text = (tmp_path / "table.md").read_text()
    note = (
        "- PRR and p are - where mha has less than 1 BLEU: it learned nothing to compare with."
    )
    assert note in text.splitlines()
    names, _, *lines = (
        [word.strip() for word in line.strip("|").split("|")]
        for line in text.splitlines()
        if line.startswith("|")
    )
    assert {line[names.index(name)] for line in lines for name in ("PRR", "p")} == {"-"}


def test_the_quickstarts_files_and_picture(
    make_run: MakeRun, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Nothing of the runs is touched; the picture is fit for a talk."""
    runs = [make_run("mha", 3), make_run("mhe_mul", 5)]
    before = {path: path.stat().st_mtime_ns for run in runs for path in run.folder.rglob("*")}
    line = ["table", *(str(run.folder) for run in runs), "--out", str(tmp_path / "out")]
    assert cli.main([*line, "--title", r"A title of $\foo$"]) == 0
    text = (tmp_path / "out" / "table.md").read_text()
    assert capsys.readouterr().out == text
    assert {path.name for path in (tmp_path / "out").iterdir()} == set(QUICKSTART.files)
    assert before == {path: path.stat().st_mtime_ns for path in before}
    rows = [line for line in text.split("\n") if line.startswith("|")]
    assert text.startswith("# A title of $\\foo$\n")
    assert len(rows) == 4
    assert len({len(row) for row in rows}) == 1, "aligned"
    assert re.match(r"\| mhe_mul +\| +1,500 \| +9,999 \| +64 \|", rows[3])
    assert any("tok:13a" in line and "version:" in line for line in text.split("\n"))
    with Image.open(tmp_path / "out" / "picture.png") as image:
        assert image.size == (3600, 1100)
        colours = {
            colour for _, colour in image.convert("RGB").getcolors(maxcolors=1 << 24) or []
        }
    assert {(0x00, 0x72, 0xB2), (0xD5, 0x5E, 0x00)} <= colours, "each kind has its colour"


def test_ten_samples_show_every_kind(make_run: MakeRun, tmp_path: Path) -> None:
    folders = [make_run("mha", 21).folder, make_run("mhe_mul", 0).folder]
    write_table(gather(folders), tmp_path, "A title")
    samples = (tmp_path / "samples.md").read_text()
    numbers = [int(number) for number in re.findall(r"^## Line (\d+)$", samples, re.MULTILINE)]
    assert len(numbers) == len(set(numbers)) == 10
    for number in numbers:
        right = REFERENCES[number - 1]
        block = f"- source: {right}\n- reference: {right}\n"
        block += f"- mha: Etwas anderes {number - 1}.\n- mhe_mul: {right}\n"
        assert block in samples


def test_what_cannot_be_compared_is_refused(make_run: MakeRun, tmp_path: Path) -> None:
    done, unfinished = make_run("mha", 3), make_run("mhe_add", None)
    with pytest.raises(UserError, match=r"is not finished: it has no test/scores\.json"):
        gather([done.folder, unfinished.folder])
    with pytest.raises(UserError, match="is no run folder"):
        gather([tmp_path])
    with pytest.raises(UserError, match="no runs"):
        gather([])
    other = make_run("mhe_mul", 3)
    for run, model in ((done, comet.MODEL), (other, "Unbabel/XCOMET-XL")):
        write_json(run.subset("test") / comet.FILE, {"score": 0.8, "model": model})
    with pytest.raises(UserError, match=r"were scored with different COMET model: score"):
        gather([done.folder, other.folder])
    (other.subset("test") / "references.txt").write_text("something else\n" * len(REFERENCES))
    with pytest.raises(UserError, match="scored with different sentences"):
        gather([done.folder, other.folder])


def test_every_format_and_the_picture_of_several_rows(
    make_run: MakeRun, tmp_path: Path
) -> None:
    """A title and a note of two lines are one."""
    models = [
        ("base", "mha", 2),
        ("base", "mhe_mul", 5),
        ("12h", "mha", 2),
        ("12h", "mhe_mul", 5),
    ]
    cells = gather(make_run(kind, wrong, row=row).folder for row, kind, wrong in models)
    write_table(
        cells, tmp_path / "out", "A title,\n1% & more", PAPER, ["big-mha\n\\input{run}"]
    )
    assert {path.name for path in (tmp_path / "out").iterdir()} == set(PAPER.files)

    def text(end: str) -> str:
        return (tmp_path / "out" / f"table.{end}").read_text()

    assert text("md").startswith("# A title, 1% & more\n")
    cells_of_12h = r"\| 12h +\| +12 \| +768 \| +12 \| +64 \|.* mhe_mul +\| +0\.00 \| +13\.31 \|"
    assert re.search(cells_of_12h, text("md"))
    assert "Not finished, and left out: big-mha" in text("md")
    latex = text("tex")
    assert latex.startswith("% A title, 1% & more\n% Needs")
    assert r"mhe\_mul" in latex
    assert latex.count(r"\begin{tabular}") == latex.count(r"\end{tabular}") == 2
    outside = [line for line in latex.split("\n") if not line.startswith("%")]
    assert not [line for line in outside if re.search(r"(?<!\\)[_%#]|input", line)], "escaped"
    values: list[dict[str, Any]] = json.loads(text("json"))
    with (tmp_path / "out" / "table.csv").open(newline="") as stream:
        rows = list(csv.DictReader(stream))
    assert [float(row["bleu"]) for row in rows] == [each["bleu"] for each in values]
    assert [row["paper_bleu"] for row in rows] == ["24.8", "23.6", "25.7", "24.2"]
    assert (values[-1]["updates"], values[-1]["dropout"]) == (40, 0.1), "as it was trained"
    assert [values[-1][name] for name in ("paper_parameters", "paper_prr")] == ["13.31", 94.2]
    with Image.open(tmp_path / "out" / "picture.png") as image:
        assert image.size == (3600, 1100)
