"""The paper's numbers stand beside ours, in every format; the reference's table is the one that is printed."""

from __future__ import annotations

import csv
import json
import re
from collections.abc import Callable
from pathlib import Path

import pytest
from PIL import Image

from fairseq_mhe.common.files import write_json
from fairseq_mhe.report.paper_table import FILES, summarise, write
from fairseq_mhe.report.table import Cell, gather
from fairseq_mhe.runs import comet
from fairseq_mhe.runs.run import Run

MakeRun = Callable[..., Run]


@pytest.fixture
def cells(make_run: MakeRun) -> list[Cell]:
    runs = [
        make_run(kind, wrong, row=row)
        for row in ("base", "12h")
        for kind, wrong in (("mha", 2), ("mhe_mul", 5))
    ]
    return gather(run.folder for run in runs)


def test_a_row_has_its_sizes_and_the_papers_numbers(cells: list[Cell]) -> None:
    found = {(cell["row"], cell["attention"]): cell for cell in summarise(cells)}
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
    write(cells, ["big-mha-seed1"], out, "A title, 1% & more")
    assert {path.name for path in out.iterdir()} == set(FILES)
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
    write(gather([run.folder]), [], tmp_path / "out", "One")
    markdown = (tmp_path / "out" / "table.md").read_text()
    headings = [
        cell.strip()
        for line in markdown.split("\n")
        if line.startswith("| row")
        for cell in line.split("|")
    ]
    assert not {"paper", "COMET", "sd of seeds", "tokenised BLEU", "PRR 95%"} & set(headings)
    write_json(run.subset("test") / comet.FILE, {"score": 0.8, "model": comet.MODEL})
    write(gather([run.folder]), [], tmp_path / "out", "One")
    assert re.search(r"\| +COMET \|", (tmp_path / "out" / "table.md").read_text())


def test_rows_trained_in_different_ways_are_all_named(make_run: MakeRun, tmp_path: Path) -> None:
    one, other = make_run("mha", 3), make_run("mhe_mul", 5)
    metrics = json.loads(other.metrics.read_text())
    write_json(other.metrics, {**metrics, "measured": "on a GPU, one model at a time, bf16"})
    write(gather([one.folder, other.folder]), [], tmp_path / "out", "Two")
    assert (
        "target tokens/s, alone; on a GPU, one model at a time, bf16."
        in (tmp_path / "out" / "table.md").read_text()
    )
