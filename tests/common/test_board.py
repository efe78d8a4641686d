"""Progress is legible: bars that fit 80 columns on a terminal, lines with the time left elsewhere."""

import io
import re

from rich.console import Console

from fairseq_mhe.common.board import Board


def shown(terminal: bool) -> str:
    console = Console(file=io.StringIO(), force_terminal=terminal, width=80, legacy_windows=False)
    with Board(console, "updates") as board:
        board.add("tiny-mhe_mul-seed1", 3000, 1000)
        board.update("tiny-mhe_mul-seed1", 1200, "loss 14.31, 12345 tokens/s")
        if not terminal:
            board.lines()
    assert isinstance(console.file, io.StringIO)
    return re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", console.file.getvalue())


def test_bars_fit_a_narrow_terminal() -> None:
    text = shown(terminal=True)
    assert "tiny-mhe_mul-seed1" in text
    assert "1200/3000" in text
    assert "left loss 14.31, 12345 tokens/s" in text
    assert "…" not in text


def test_without_a_terminal_it_is_a_line() -> None:
    text = shown(terminal=False)
    expected = (
        r"  tiny-mhe_mul-seed1: 1200/3000 updates, loss 14\.31, 12345 tokens/s, left: \d+:\d\d\n"
    )
    assert re.fullmatch(expected, text)


def test_finished_rows_are_not_repeated() -> None:
    console = Console(file=io.StringIO(), force_terminal=False)
    with Board(console, "updates") as board:
        board.add("done", 5, 5)
        board.add("waiting", 5)
        board.lines()
    assert isinstance(console.file, io.StringIO)
    assert console.file.getvalue() == "  waiting: 0/5 updates, left: not known yet\n"
