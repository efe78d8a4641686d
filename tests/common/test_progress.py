"""Without a terminal a board prints lines with the time left."""

import io
from types import SimpleNamespace

import pytest
from rich.console import Console

from fairseq_mhe.common import progress
from fairseq_mhe.common.progress import Board


def screen() -> Console:
    return Console(file=io.StringIO(), force_terminal=False, width=100, legacy_windows=False)


def text_of(console: Console) -> str:
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


@pytest.fixture
def now(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The clock, which stands still until a test changes it."""
    time = [1.0]
    monkeypatch.setattr(progress, "time", SimpleNamespace(monotonic=lambda: time[0]))
    return time


def test_rows_that_are_known_in_advance_show_their_states() -> None:
    console = screen()
    with Board(names=["a", "b", "c", "d"], console=console) as board:
        board.state = "training"
        board.add("a", 1000, 200)
        board.update("a", 600, note="loss 5.25, 1000 tokens/s")
        board.state = "translating"
        board.add("b", 30)
        board.finish("c")
        board.print_lines()
    count, first, *others = text_of(console).splitlines()
    assert count == "  1 of 4 done"
    assert first.startswith("  a: training 600/1000, loss 5.25, 1000 tokens/s, left: ")
    assert others == ["  b: translating 0/30, left: not known yet"]


def test_lines_come_every_15_seconds_and_once_at_the_end(now: list[float]) -> None:
    console = screen()
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
