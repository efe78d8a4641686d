"""The table says what the runs say, with the promised keys; what cannot be compared is refused."""

from __future__ import annotations

import csv
import json
import re
from collections.abc import Callable
from pathlib import Path

import pytest
from PIL import Image
from sacrebleu.metrics import BLEU

from fairseq_mhe import cli
from fairseq_mhe.common.errors import UserError
from fairseq_mhe.common.files import write_json, write_text
from fairseq_mhe.prepare.text import read_lines
from fairseq_mhe.report import plots, significance
from fairseq_mhe.report.results import Cell, gather, summarise
from fairseq_mhe.report.translation_table import PAPER, QUICKSTART, Preset, write_table
from fairseq_mhe.runs import comet
from fairseq_mhe.runs.run import Run
from tests.fixtures.runs import REFERENCES

MakeRun = Callable[..., Run]
PROMISED = {
    "attention",
    "attention_parameters",
    "total_parameters",
    "kv_bytes_per_token",
    "bleu",
    "chrf",
    "prr",
    "p_value",
    "signature",
    "tokens_per_second",
    "sentences_per_second",
}


@pytest.fixture(autouse=True)
def few_pictures(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Drawing and resampling take most of the time; only these tests look at a picture, and how
    comparisons are made is tested beside.
    """
    monkeypatch.setattr(significance, "RESAMPLES", 100)
    if request.function not in (
        test_files_are_written_and_nothing_is_trained,
        test_the_picture_is_fit_for_a_talk,
        test_every_format_is_written,
    ):
        monkeypatch.setattr(plots, "save", lambda _, path: write_text(path, ""))


def bleu_of(run: Run) -> float:
    hypotheses = list(read_lines(run.subset("test") / "hypotheses.txt"))
    return BLEU().corpus_score(hypotheses, [REFERENCES]).score


def test_one_object_a_kind_with_the_promised_keys(make_run: MakeRun) -> None:
    mha, mhe = make_run("mha", 3), make_run("mhe_mul", 9)
    first, second = summarise(gather([mha.folder, mhe.folder]))
    assert set(first) >= PROMISED <= set(second)
    assert (first["attention"], second["attention"]) == ("mha", "mhe_mul")
    assert first["bleu"] == pytest.approx(bleu_of(mha), abs=1e-3)
    assert (first["prr"], first["p_value"]) == (100.0, None)
    assert second["prr"] == pytest.approx(100 * bleu_of(mhe) / bleu_of(mha), abs=0.01)
    assert second["prr_low"] < second["prr"] < second["prr_high"]
    assert 0 < second["p_value"] < 0.05
    assert (second["attention_parameters"], second["kv_bytes_per_token"]) == (1500, 64)


def test_seeds_are_averaged(make_run: MakeRun) -> None:
    runs = [make_run("mha", 2, seed=1), make_run("mha", 6, seed=2), make_run("mhe_mul", 6, seed=1)]
    mha, mhe = summarise(gather(run.folder for run in runs))
    bleus = [bleu_of(run) for run in runs[:2]]
    assert mha["seeds"] == [1, 2]
    assert mha["bleu"] == pytest.approx(sum(bleus) / 2, abs=1e-3)
    assert mha["bleu_deviation"] == pytest.approx(abs(bleus[0] - bleus[1]) / 2**0.5, abs=1e-3)
    assert mha["tokens_per_second"] == 1500.0
    assert mhe["bleu_deviation"] is None


def test_the_comparison_is_of_all_seeds(make_run: MakeRun) -> None:
    """The first seeds are equal, the others are not."""
    runs = [
        make_run(kind, wrong, seed)
        for kind, wrongs in (("mha", (3, 2, 2)), ("mhe_mul", (3, 15, 16)))
        for seed, wrong in enumerate(wrongs, start=1)
    ]
    mha, mhe = summarise(gather(run.folder for run in runs))
    assert mhe["prr"] == pytest.approx(100 * mhe["bleu"] / mha["bleu"], abs=0.01)
    assert mhe["p_value"] < 1.0
    assert mhe["prr_low"] < mhe["prr"] < mhe["prr_high"]
    confidences = [
        json.loads((run.subset("test") / "scores.json").read_text())["bleu"]["confidence"]
        for run in runs[:3]
    ]
    assert mha["bleu_confidence"] == pytest.approx(sum(confidences) / 3, abs=1e-3)


@pytest.mark.parametrize(("name", "value"), [("updates", 41), ("precision", "bf16")])
def test_only_seeds_of_one_model_belong_together(
    make_run: MakeRun, name: str, value: int | str
) -> None:
    one, other = make_run("mha", 2, seed=1), make_run("mha", 6, seed=2)
    with pytest.raises(UserError, match="are both tiny mha and differ by nothing"):
        gather([one.folder, one.folder])
    config = json.loads((other.folder / "config.json").read_text())
    config["settings"]["training"][name] = value
    write_json(other.folder / "config.json", config)
    with pytest.raises(UserError, match=f"are both tiny mha and differ by {name}, where seeds"):
        gather([one.folder, other.folder])


def test_the_deviation_is_shown_where_there_are_several_seeds(
    make_run: MakeRun, tmp_path: Path
) -> None:
    one, other = make_run("mha", 2, seed=1), make_run("mha", 6, seed=2)
    for folders, shown in (([one.folder], False), ([one.folder, other.folder], True)):
        write_table(gather(folders), tmp_path / "out", "A title")
        heading = (tmp_path / "out" / "table.md").read_text().split("\n")[2]
        assert ("|    sd |" in heading) is shown, heading


def test_without_the_baseline_nothing_is_compared(make_run: MakeRun) -> None:
    (only,) = summarise(gather([make_run("mhe_mul", 3).folder]))
    assert (only["prr"], only["p_value"]) == (None, None)


@pytest.mark.parametrize("preset", [QUICKSTART, PAPER])
def test_a_baseline_that_learned_nothing_is_a_dash_and_a_note(
    make_run: MakeRun, tmp_path: Path, preset: Preset
) -> None:
    runs = [make_run("mha", len(REFERENCES)), make_run("mhe_mul", 5)]
    write_table(gather(run.folder for run in runs), tmp_path / "out", "A title", preset)
    found = json.loads((tmp_path / "out" / "table.json").read_text())
    assert [cell[name] for cell in found for name in ("prr", "prr_low", "p_value")] == [None] * 6
    told = "- PRR and p are - where mha has less than 1 BLEU: it learned nothing to compare with."
    text = (tmp_path / "out" / "table.md").read_text()
    assert told in text.splitlines()
    tables = [
        [[word.strip() for word in line.strip("|").split("|")] for line in table.splitlines()]
        for table in text.split("\n\n")
        if table.startswith("|")
    ]
    for heading, _, *lines in tables:
        compared = [i for i, name in enumerate(heading) if name in ("PRR", "PRR 95%", "p")]
        assert compared
        assert {line[i] for line in lines for i in compared} == {"-"}


def test_files_are_written_and_nothing_is_trained(make_run: MakeRun, tmp_path: Path) -> None:
    runs = [make_run("mha", 3), make_run("mhe_mul", 5)]
    before = {path: path.stat().st_mtime_ns for run in runs for path in run.folder.rglob("*")}
    write_table(gather(run.folder for run in runs), tmp_path / "out", r"A title of $\foo$")
    assert {path.name for path in (tmp_path / "out").iterdir()} == set(QUICKSTART.files)
    assert before == {
        path: path.stat().st_mtime_ns for run in runs for path in run.folder.rglob("*")
    }
    assert [
        row["attention"] for row in json.loads((tmp_path / "out" / "table.json").read_text())
    ] == ["mha", "mhe_mul"]


def test_the_markdown_is_a_table_with_signatures(make_run: MakeRun, tmp_path: Path) -> None:
    write_table(
        gather([make_run("mha", 3).folder, make_run("mhe_mul", 5).folder]), tmp_path, "A title"
    )
    lines = (tmp_path / "table.md").read_text().split("\n")
    rows = [line for line in lines if line.startswith("|")]
    assert lines[0] == "# A title"
    assert len(rows) == 4
    assert len({len(row) for row in rows}) == len({row.count("|") for row in rows}) == 1
    assert re.match(r"\| mhe_mul +\| +1,500 \| +9,999 \| +64 \|", rows[3])
    assert any("tok:13a" in line and "version:" in line for line in lines)


def test_the_picture_is_fit_for_a_talk(make_run: MakeRun, tmp_path: Path) -> None:
    write_table(
        gather([make_run("mha", 3).folder, make_run("mhe_mul", 5).folder]), tmp_path, "A title"
    )
    with Image.open(tmp_path / "picture.png") as image:
        assert image.size == (3600, 1100)
        colours = {colour for _, colour in image.convert("RGB").getcolors(maxcolors=1 << 24) or []}
    assert {(0x00, 0x72, 0xB2), (0xD5, 0x5E, 0x00)} <= colours, "each kind has its colour"


def test_ten_samples_show_every_kind(make_run: MakeRun, tmp_path: Path) -> None:
    write_table(
        gather([make_run("mha", 21).folder, make_run("mhe_mul", 0).folder]), tmp_path, "A title"
    )
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
    (other.subset("test") / "references.txt").write_text("something else\n" * len(REFERENCES))
    with pytest.raises(UserError, match="different sentences"):
        gather([done.folder, other.folder])


def test_the_command(make_run: MakeRun, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folders = [str(make_run(kind, 4).folder) for kind in ("mha", "mhe_mul")]
    assert cli.main(["table", *folders, "--out", str(tmp_path / "out")]) == 0
    assert capsys.readouterr().out == (tmp_path / "out" / "table.md").read_text()


@pytest.fixture
def cells(make_run: MakeRun) -> list[Cell]:
    runs = [
        make_run(kind, wrong, row=row)
        for row in ("base", "12h")
        for kind, wrong in (("mha", 2), ("mhe_mul", 5))
    ]
    return gather(run.folder for run in runs)


def test_a_row_has_its_sizes_and_the_papers_numbers(cells: list[Cell]) -> None:
    found = {(cell["row"], cell["attention"]): cell for cell in summarise(cells, paper=True)}
    mhe = found["12h", "mhe_mul"]
    assert [mhe[name] for name in ("layers", "width", "heads", "head_width")] == [12, 768, 12, 64]
    assert [mhe[name] for name in ("paper_parameters", "paper_bleu", "paper_prr")] == [
        "13.31",
        24.2,
        94.2,
    ]
    assert found["base", "mha"]["paper_prr"] == 100.0
    assert (mhe["updates"], mhe["dropout"]) == (40, 0.1), (
        "what was trained, not what the recipe says"
    )


def test_every_format_is_written(cells: list[Cell], tmp_path: Path) -> None:
    out = tmp_path / "out"
    write_table(cells, out, "A title, 1% & more", PAPER, ["big-mha-seed1"])
    assert {path.name for path in out.iterdir()} == set(PAPER.files)
    markdown = (out / "table.md").read_text()
    assert markdown.startswith("# A title, 1% & more\n")
    assert re.search(
        r"\| 12h +\| +12 \| +768 \| +12 \| +64 \|.* mhe_mul +\| +0\.00 \| +13\.31 \|", markdown
    )
    assert "Not finished, and left out: big-mha-seed1." in markdown
    latex = (out / "table.tex").read_text()
    assert latex.startswith("% A title, 1% & more\n")
    assert r"mhe\_mul" in latex
    assert latex.count(r"\begin{tabular}") == latex.count(r"\end{tabular}") == 2
    outside = [line for line in latex.split("\n") if not line.startswith("%")]
    assert not [line for line in outside if re.search(r"(?<!\\)[_%#]", line)], "nothing unescaped"
    with (out / "table.csv").open(newline="") as stream:
        rows = list(csv.DictReader(stream))
    expected = json.loads((out / "table.json").read_text())
    assert [float(row["bleu"]) for row in rows] == [cell["bleu"] for cell in expected]
    assert [row["paper_bleu"] for row in rows] == ["24.8", "23.6", "25.7", "24.2"]
    with Image.open(out / "picture.png") as image:
        assert image.size == (3600, 1100)
        colours = {colour for _, colour in image.convert("RGB").getcolors(maxcolors=1 << 24) or []}
    assert {(0x00, 0x72, 0xB2), (0xD5, 0x5E, 0x00)} <= colours


def test_columns_with_nothing_to_say_are_left_out(make_run: MakeRun, tmp_path: Path) -> None:
    run = make_run("mha", 3)
    write_table(gather([run.folder]), tmp_path / "out", "One", PAPER)
    markdown = (tmp_path / "out" / "table.md").read_text()
    headings = [
        cell.strip()
        for line in markdown.split("\n")
        if line.startswith("| row")
        for cell in line.split("|")
    ]
    assert not {"paper", "COMET", "sd of seeds", "tokenised BLEU", "PRR 95%"} & set(headings)
    write_json(run.subset("test") / comet.FILE, {"score": 0.8, "model": comet.MODEL})
    write_table(gather([run.folder]), tmp_path / "out", "One", PAPER)
    shown = (tmp_path / "out" / "table.md").read_text()
    assert re.search(r"\| +COMET \|", shown)
    assert f"COMET: {comet.MODEL}, " in shown


def test_scores_by_two_comet_models_are_refused(make_run: MakeRun) -> None:
    runs = [make_run("mha", 3), make_run("mhe_mul", 4)]
    for run, model in zip(runs, (comet.MODEL, "Unbabel/XCOMET-XL"), strict=True):
        write_json(run.subset("test") / comet.FILE, {"score": 0.8, "model": model})
    with pytest.raises(UserError, match=r"wmt22-comet-da, .* by Unbabel/XCOMET-XL: score"):
        gather([run.folder for run in runs])


def test_rows_trained_in_different_ways_are_all_named(make_run: MakeRun, tmp_path: Path) -> None:
    one, other = make_run("mha", 3), make_run("mhe_mul", 5)
    metrics = json.loads(other.metrics.read_text())
    write_json(other.metrics, {**metrics, "measured": "on a GPU, one model at a time, bf16"})
    write_table(gather([one.folder, other.folder]), tmp_path / "out", "Two", PAPER)
    assert (
        "target tokens/s, alone; on a GPU, one model at a time, bf16."
        in (tmp_path / "out" / "table.md").read_text()
    )


def test_the_command_has_the_papers_columns_too(
    make_run: MakeRun, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = make_run("mha", 4)
    words = ["table", str(run.folder), "--out", str(tmp_path / "out"), "--columns", "paper"]
    assert cli.main(words) == 0
    assert "|   #Params (M) |" in capsys.readouterr().out
    assert {path.name for path in (tmp_path / "out").iterdir()} == set(PAPER.files)
