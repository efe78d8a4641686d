"""Tests of the benchmark: the text it makes, the classic pipeline beside ours, what it measures, and going on."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from argparse import Namespace
from collections import Counter
from itertools import islice
from pathlib import Path

import pytest

from fairseq_mhe.common.errors import UserError
from fairseq_mhe.prepare import benchmark
from fairseq_mhe.prepare.classic import CLEAN, find_moses, pipe
from fairseq_mhe.prepare.synthetic import synthetic_pairs, write_corpus


def test_the_text_is_the_same_every_time_and_its_words_go_on_growing(tmp_path: Path) -> None:
    write_corpus(tmp_path / "a", 3000)
    pairs = list(synthetic_pairs(3000))
    for side, lang in enumerate(("en", "de")):
        assert (tmp_path / f"a.{lang}").read_text(encoding="utf-8") == "".join(
            f"{pair[side]}\n" for pair in pairs
        )
        words = Counter(word for pair in pairs for word in pair[side].split())
        half = {word for pair in islice(pairs, 1500) for word in pair[side].split()}
        assert 15 < words.total() / 3000 < 35
        assert len(words) > 1.2 * len(half)
        assert sum(count == 1 for count in words.values()) > 0.3 * len(words)


def test_cleaning_is_that_of_clean_corpus_n(tmp_path: Path) -> None:
    pairs = [
        ("a b c", "d e"),
        ("a b c d", "d e"),
        ("", "x"),
        ("a  b ", "c"),
        ("w " * 251, "w " * 250),
        ("a", "b"),
    ]
    for side, name in enumerate(("e", "f")):
        (tmp_path / name).write_text("".join(f"{pair[side]}\n" for pair in pairs))
    files = [tmp_path / name for name in ("e", "f", "eo", "fo")]
    pipe([["perl", "-e", CLEAN, *files]], [], tmp_path / "log")
    assert (tmp_path / "eo").read_text() == "a b c\na\n"
    assert (tmp_path / "fo").read_text() == "d e\nb\n"


@pytest.mark.parametrize(
    "lines", [1, 1_000_000], ids=["cat is done first", "cat is cut off by its end"]
)
def test_a_failing_command_is_told(tmp_path: Path, lines: int) -> None:
    (tmp_path / "text").write_text("a\n" * lines)  # a million: more than any pipe holds
    with pytest.raises(UserError, match=r"^false failed$"):
        pipe([["false"], ["cat"]], [tmp_path / "text"], tmp_path / "out")


def test_text_that_is_missing_is_told(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"^cat .*text failed$"):
        pipe([["cat"]], [tmp_path / "text"], tmp_path / "out")


def test_without_moses_it_is_asked_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(UserError, match=r"tokenizer\.perl is not there; --moses must name a clone"):
        find_moses(tmp_path)
    monkeypatch.setattr("importlib.util.find_spec", lambda _: None)
    with pytest.raises(UserError, match="pip install mosestokenizer"):
        find_moses(None)
    monkeypatch.setattr("shutil.which", lambda _: None)
    with pytest.raises(UserError, match="needs perl"):
        find_moses(None)


def test_memory_of_a_session_is_that_of_all_its_processes() -> None:
    script = "import os; os.fork(); block = bytearray(50_000_000); block[::4096] = b'x' * len(block[::4096]); input()"
    with (
        subprocess.Popen(
            [sys.executable, "-c", script], stdin=subprocess.PIPE, start_new_session=True
        ) as process,
        benchmark.watched(process.pid) as peak,
    ):
        for _ in range(200):
            if peak[0] > 100_000_000:
                break
            benchmark.time.sleep(0.1)
        process.kill()
    assert 100_000_000 < peak[0] < 200_000_000
    assert benchmark.session_memory(os.getsid(0)) > 0


RESULT = {"steps": {"clean": 2.0, "learn": 1.0}, "kept": 90, "seconds": 4.0, "peak_bytes": 10**9}


def arguments(out: Path) -> Namespace:
    return Namespace(pairs=100, merges=10, workers=2, moses=None, scratch=None, out=out)


def test_a_stopped_benchmark_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []

    def measured(words: list[str]) -> benchmark.Result:
        asked.append(words[words.index("--run") + 1])
        if len(asked) == 3:
            raise KeyboardInterrupt
        return dict(RESULT)

    monkeypatch.setattr(benchmark, "run_apart", measured)
    monkeypatch.setattr(benchmark, "find_moses", lambda _: None)
    with pytest.raises(KeyboardInterrupt):
        benchmark.measure(arguments(tmp_path / "x"), tmp_path / "x")
    results = benchmark.measure(arguments(tmp_path / "x"), tmp_path / "x")
    assert asked == ["classic", "ours", "ours", "ours", "ours"]
    assert [(run["pairs"], run["workers"]) for run in results.values()] == [
        (100, 2),
        (100, 2),
        (100, 1),
        (25, 2),
    ]
    assert not list(tmp_path.iterdir())


def test_the_report_says_what_was_measured() -> None:
    runs = {
        "classic": {**RESULT, "pairs": 100, "workers": 2, "seconds": 14.0, "steps": {"learn": 7.0}},
        "ours": {**RESULT, "pairs": 100, "workers": 2},
        "ours, 1 core": {**RESULT, "pairs": 100, "workers": 1, "seconds": 7.0},
        "ours, smaller": {**RESULT, "pairs": 25, "workers": 2, "peak_bytes": 10**9 - 750},
    }
    text = benchmark.markdown(
        {"runs": runs, "machine": {"processor": "p"}, "software": {}, "date": "d", "command": "c"}
    )
    assert "**3.5 times**" in text
    assert "1.75 times as fast as one" in text
    assert "by 10 bytes a pair" in text
    assert "| clean, lines/s | - | 100 | 100 | 25 |" in text
    assert "| learn, lines/s | 29 | 200 | 200 | 50 |" in text


def test_ours_reports_its_steps(tmp_path: Path) -> None:
    for split, count in (("train", 300), ("valid", 20), ("test", 20)):
        write_corpus(tmp_path / split, count)
    result = benchmark.ours(tmp_path / "train", tmp_path / "work", 1, 100)
    assert list(result["steps"]) == ["clean", "learn", "segment", "binarise"]
    assert all(seconds > 0 for seconds in result["steps"].values())
    assert result["kept"] > 250
    json.dumps(result)
