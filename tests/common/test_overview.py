"""The overview shows each cell's state, progress and note, on a terminal and in lines."""

from __future__ import annotations

import io

from rich.console import Console

from fairseq_mhe.common.overview import Overview


def shown(terminal: bool) -> tuple[Overview, io.StringIO]:
    screen = io.StringIO()
    overview = Overview(Console(file=screen, force_terminal=terminal, width=100), ["a", "b", "c"])
    with overview:
        overview.begin("training")
        overview.add("a", 1000, 200)
        overview.update("a", 600, "loss 5.25, 1000 tokens/s")
        overview.begin("translating")
        overview.add("b", 30)
        overview.finish("c")
        if not terminal:
            overview.lines()
    return overview, screen


def test_on_a_terminal_every_cell_has_a_row() -> None:
    _, screen = shown(terminal=True)
    rows = [line.split() for line in screen.getvalue().splitlines() if line.split()]
    assert any(row[:3] == ["a", "training", "600/1,000"] and "5.25," in row for row in rows)
    assert any(row[:3] == ["b", "translating", "0/30"] for row in rows)
    assert any(row[:2] == ["c", "done"] for row in rows)


def test_elsewhere_the_cells_at_work_have_lines() -> None:
    _, screen = shown(terminal=False)
    lines = screen.getvalue().splitlines()
    assert lines[0] == "  1 of 3 cells done"
    assert lines[1].startswith("  a: training 600/1000, loss 5.25, 1000 tokens/s, left: 0:00:0")
    assert lines[2:] == ["  b: translating 0/30, left: not known yet"]


def test_a_note_stays_until_there_is_another() -> None:
    overview, _ = shown(terminal=False)
    overview.update("a", 1000)
    assert overview._cells["a"].note == "loss 5.25, 1000 tokens/s"
