"""The command translates files, pipes and a terminal line by line, and refuses bad input."""

import gzip
import os
import pty
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from fairseq_mhe import cli
from fairseq_mhe.deploy import translate
from fairseq_mhe.deploy.translator import Translator
from tests.deploy.conftest import SOURCES
from tests.fixtures.processes import PYTHON

BY_FAIRSEQ = ["--engine", "fairseq", "--cpu"]


@pytest.fixture
def text(tmp_path: Path) -> Path:
    """A file with the sources of the test set."""
    path = tmp_path / "a text.en"
    path.write_text("".join(f"{line}\n" for line in SOURCES), encoding="utf-8")
    return path


@pytest.fixture(scope="module")
def expected(brief: Path) -> list[str]:
    return Translator.load(brief, engine="fairseq", cpu=True).translate(SOURCES)


def command(*words: str | Path) -> list[str]:
    line = [sys.executable, "-m", "fairseq_mhe_cli", "translate", *map(str, words)]
    return [*line, *BY_FAIRSEQ, "--threads", "1"]


def test_several_files_are_translated_to_one_output_that_is_complete_or_absent(
    brief: Path, expected: list[str], text: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    packed = tmp_path / "more.gz"
    packed.write_bytes(gzip.compress(f"\n{SOURCES[0]}".encode()))
    out = tmp_path / "out" / "translations.gz"
    master, slave = pty.openpty()
    os.write(master, f"{SOURCES[0]}\n\4\4".encode())  # \4 ends the text; a terminal is read once
    words = ["translate", str(brief), *map(str, (text, packed, os.ttyname(slave), "--out", out))]
    assert cli.main([*words, *BY_FAIRSEQ]) == 0
    translations = gzip.decompress(out.read_bytes()).decode().split("\n")
    assert translations == [*expected, "", expected[0], expected[0], ""]
    assert capsys.readouterr().out == ""
    out = tmp_path / "none"
    words = ["translate", str(brief), str(packed), "--nbest", "9", "--out", str(out)]
    assert cli.main([*words, *BY_FAIRSEQ]) == 2
    assert not out.exists()


def test_nbest_numbers_lines_across_chunks_and_reports_progress_and_cuts(
    brief: Path,
    expected: list[str],
    text: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(translate, "CHUNK", 8)
    long = text.with_name("long")
    long.write_text("\n" + "word " * 400)
    words = ["translate", str(brief), str(text), str(long), "--nbest", "2", *BY_FAIRSEQ]
    assert cli.main(words) == 0
    out, error = capsys.readouterr()
    rows = [line.split("\t") for line in out.splitlines()]
    assert [int(row[0]) for row in rows] == [n for n in range(1, 23) for _ in range(2)]
    scores = [float(row[1]) for row in rows]
    assert all(a >= b for a, b in zip(scores[::2], scores[1::2], strict=True))
    assert [row[2] for row in rows[:40:2]] == expected
    assert "8 of 22 lines are translated\n16 of 22 lines" in error
    assert "line 22: a sentence is too long and was cut" in error


def test_standard_input_is_translated_up_to_an_invalid_line(brief: Path) -> None:
    text = f"{SOURCES[0]}\r\n\n{SOURCES[0]}\n".encode() + b"\xff"
    line = command(brief, "-", "--out", "-")
    done = subprocess.run(line, input=text, capture_output=True, check=False, timeout=300)
    first, empty, last, end = done.stdout.decode().split("\n")
    assert (first, empty, end) == (last or None, "", "")
    assert done.returncode == 2
    assert b"standard input, line 4: byte 1 (0xff) is not valid UTF-8" in done.stderr


def test_a_terminal_gets_each_translation_at_once_and_ctrl_c_ends_the_command(brief: Path) -> None:
    master, slave = pty.openpty()
    with subprocess.Popen(
        [PYTHON, *command(brief)[1:]], stdin=slave, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as process:
        os.close(slave)
        assert process.stdout is not None
        assert process.stderr is not None
        assert b"en to de: a line, then Enter; Ctrl-D ends" in process.stderr.readline()
        for source in SOURCES[:2]:
            os.write(master, f"{source}\n".encode())
            assert process.stdout.readline().strip()
        process.send_signal(signal.SIGINT)
        assert process.stderr.read().endswith(b": stopped; run the same command again to finish\n")
    os.close(master)
    assert process.returncode == 130
