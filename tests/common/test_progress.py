"""A board shows rows of 80 columns on a terminal, otherwise lines with the time left."""

import io
import re
from types import SimpleNamespace

import pytest
from rich.console import Console

from fairseq_mhe.common import progress
from fairseq_mhe.common.progress import Board


def screen(terminal: bool, width: int = 80) -> Console:
    return Console(file=io.StringIO(), force_terminal=terminal, width=width, legacy_windows=False)


def text_of(console: Console) -> str:
    assert isinstance(console.file, io.StringIO)
    return re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", console.file.getvalue())


@pytest.fixture
def now(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The clock, which stands still until a test changes it."""
    time = [1.0]
    monkeypatch.setattr(progress, "time", SimpleNamespace(monotonic=lambda: time[0]))
    return time


@pytest.mark.parametrize("terminal", [True, False])
def test_rows_that_are_known_in_advance_show_their_states(terminal: bool) -> None:
    console = screen(terminal, 100)
    with Board(names=["a", "b", "c", "d"], console=console) as board:
        board.state = "training"
        board.add("a", 1000, 200)
        board.update("a", 600, note="loss 5.25, 1000 tokens/s")
        board.state = "translating"
        board.add("b", 30)
        board.finish("c")
        if not terminal:
            board.print_lines()
    lines = text_of(console).splitlines()
    if terminal:
        rows = [line.split() for line in lines if line.split()]
        assert any(row[:2] == ["a", "training"] and {"600/1000", "5.25,"} < {*row} for row in rows)
        assert any(row[:2] == ["b", "translating"] and "0/30" in row for row in rows)
        assert any(row[:2] == ["c", "done"] for row in rows)
        assert any(row[:2] == ["d", "waiting"] for row in rows)
    else:
        assert lines[0] == "  1 of 4 done"
        assert lines[1].startswith("  a: training 600/1000, loss 5.25, 1000 tokens/s, left: ")
        assert lines[2:] == ["  b: translating 0/30, left: not known yet"]


def test_lines_come_every_15_seconds_and_once_at_the_end(now: list[float]) -> None:
    console = screen(terminal=False)
    with Board("lines", console=console) as board:
        for second in range(41):
            now[0] = 1.0 + second
            board.update("learn", second, 40)
            board.update("learn", second, 40)
    assert text_of(console).splitlines() == [
        "  learn: 15/40 lines, left: 0:00:25",
        "  learn: 30/40 lines, left: 0:00:10",
        "  learn: 40/40 lines, took 0:00:40",
    ]


def test_a_row_that_stands_still_is_printed_once(now: list[float]) -> None:
    console = screen(terminal=False)
    with Board(names=["a", "b"], console=console) as board:
        board.add("a", 1000)
        for _ in range(4):
            now[0] += 15
            board.tick()
    assert text_of(console).splitlines() == ["  0 of 2 done", "  a: 0/1000, left: not known yet"]
