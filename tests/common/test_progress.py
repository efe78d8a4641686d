"""A board shows rows of 80 columns on a terminal, otherwise lines with the time left."""

import io
import re
import threading
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


def test_rows_fit_80_columns_and_show_brackets_unchanged(now: list[float]) -> None:
    console = screen(terminal=True)
    with Board("updates", console=console) as board:
        board.add("tiny-mhe_mul[/b]-seed1", 3000, 1000)
        for updates in (1100, 1200):
            now[0] += 10
            board.update("tiny-mhe_mul[/b]-seed1", updates, note="loss 14.31, 12345 tok[bold]")
    row = text_of(console).splitlines()[-1]
    assert "tiny-mhe_mul[/b]-seed1" in row
    assert "1200/3000 0:03:00 loss 14.31, 12345 tok[bold]" in row
    assert "…" not in row


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


def test_a_terminal_is_drawn_ten_times_a_second_without_a_thread(
    now: list[float], monkeypatch: pytest.MonkeyPatch
) -> None:
    """With a thread, forking worker processes meanwhile would be unsafe."""
    drawn, threads = [], threading.active_count()
    with Board(console=screen(terminal=True)) as board:
        monkeypatch.setattr(board._progress, "refresh", lambda: drawn.append(now[0]))
        for block in range(1001):
            now[0] += 0.001
            board.update("learn", block, 1000)
        assert threading.active_count() == threads
    assert 10 <= len(drawn) <= 12  # one second


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
