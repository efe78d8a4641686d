"""Tests of results/prepare/: the text it makes, the classic pipeline beside ours, what is said."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from argparse import Namespace
from collections import Counter
from collections.abc import Callable
from itertools import islice
from pathlib import Path
from typing import Any

import pytest

import compare
from fairseq_mhe.common.errors import UserError
from synthetic import synthetic_pairs, write_corpus

STEPS = dict(compare.CLASSIC)


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


@pytest.fixture
def classic(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], dict[str, Any]]:
    """Runs one step of the classic pipeline in a folder with an odd name."""
    work = tmp_path / "new \"comer's é"
    work.mkdir()
    scripts = dict.fromkeys(["TOKENIZER", "NORMALISE", "REMOVE", "CLEAN"], Path("/nowhere"))
    monkeypatch.setattr(compare, "find_moses", lambda _: scripts)

    def run(step: str) -> dict[str, Any]:
        monkeypatch.setattr(compare, "CLASSIC", {step: STEPS.get(step, "false | cat > train.en")})
        return compare.classic(
            Namespace(text=work / "train", work=work, merges=10, workers=1, moses=None)
        )

    return run


def test_cleaning_is_that_of_clean_corpus_n(
    tmp_path: Path, classic: Callable[[str], dict[str, Any]]
) -> None:
    pairs = [
        ("a b c", "d e"),
        ("a b c d", "d e"),
        ("", "x"),
        ("a  b ", "c"),
        ("w " * 251, "w " * 250),
        ("a", "b"),
    ]
    work = tmp_path / "new \"comer's é"
    for side, lang in enumerate(("en", "de")):
        (work / f"bpe.{lang}").write_text("".join(f"{pair[side]}\n" for pair in pairs))
    assert classic("clean")["kept"] == 2
    assert (work / "train.en").read_text() == "a b c\na\n"
    assert (work / "train.de").read_text() == "d e\nb\n"


def test_merges_are_learnt_by_subword_nmt(
    tmp_path: Path, classic: Callable[[str], dict[str, Any]]
) -> None:
    work = tmp_path / "new \"comer's é"
    for lang in ("en", "de"):
        (work / f"tok.{lang}").write_text("lower lowest low\n" * 3)
    (work / "train.en").write_text("")
    assert set(classic("learn")["steps"]) == {"learn"}
    assert "l o" in (work / "code").read_text().split("\n")
    classic("segment")
    assert (work / "bpe.de").read_text().startswith("low")


def test_a_failing_command_is_told(classic: Callable[[str], dict[str, Any]]) -> None:
    with pytest.raises(UserError, match="step 'failing' of the classic pipeline failed"):
        classic("failing")


def test_without_moses_it_is_asked_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(UserError, match=r"tokenizer\.perl is missing; --moses must name a clone"):
        compare.find_moses(tmp_path)
    monkeypatch.setattr("importlib.util.find_spec", lambda _: None)
    with pytest.raises(UserError, match="pip install mosestokenizer"):
        compare.find_moses(None)
    monkeypatch.setattr("shutil.which", lambda _: None)
    with pytest.raises(UserError, match="needs perl"):
        compare.find_moses(None)


def test_memory_of_a_session_is_that_of_all_its_processes() -> None:
    script = "import os; os.fork(); block = bytearray(50_000_000); "
    script += "block[::4096] = b'x' * len(block[::4096]); input()"
    peak = 0
    with subprocess.Popen(
        [sys.executable, "-c", script], stdin=subprocess.PIPE, start_new_session=True
    ) as process:
        for _ in range(200):
            peak = max(peak, compare.session_memory(process.pid))
            if peak > 100_000_000:
                break
            time.sleep(0.1)
        process.kill()
    assert 100_000_000 < peak < 200_000_000
    assert compare.session_memory(os.getsid(0)) > 0


RESULT = {"steps": {"clean": 2.0, "learn": 1.0}, "kept": 90, "seconds": 4.0, "peak_bytes": 10**9}


def arguments(out: Path) -> Namespace:
    return Namespace(pairs=100, merges=10, workers=2, moses=None, scratch=None, out=out)


def test_a_stopped_benchmark_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []

    def measured(words: list[str]) -> dict[str, Any]:
        asked.append(words[words.index("--run") + 1])
        if len(asked) == 3:
            raise KeyboardInterrupt
        return dict(RESULT)

    monkeypatch.setattr(compare, "run_apart", measured)
    monkeypatch.setattr(compare, "find_moses", lambda _: None)
    with pytest.raises(KeyboardInterrupt):
        compare.measure(arguments(tmp_path / "x"))
    results = compare.measure(arguments(tmp_path / "x"))
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
        "ours, 1 core": {
            **RESULT,
            "pairs": 100,
            "workers": 1,
            "seconds": 7.0,
            "steps": {"learn": 1.8, "clean": 3.4},
        },
        "ours, smaller": {**RESULT, "pairs": 25, "workers": 2, "peak_bytes": 10**9 - 750},
    }
    text = compare.markdown(
        {"runs": runs, "machine": {"processor": "p"}, "software": {}, "date": "d", "command": "c"}
    )
    assert "**3.5 times**" in text
    assert "1.75 times as fast as one, in the steps alone 1.73 times" in text
    assert "by 10 bytes a pair" in text
    assert "| clean, lines/s | - | 100 | 59 | 25 |" in text
    assert "| learn, lines/s | 29 | 200 | 111 | 50 |" in text


def test_the_committed_report_is_that_of_the_committed_numbers() -> None:
    folder = Path(compare.__file__).parent
    report = json.loads((folder / "prepare.json").read_text())
    assert compare.markdown(report) == (folder / "prepare.md").read_text()


def test_ours_reports_its_steps(tmp_path: Path) -> None:
    for split, count in (("train", 300), ("valid", 20), ("test", 20)):
        write_corpus(tmp_path / split, count)
    result = compare.ours(
        Namespace(text=tmp_path / "train", work=tmp_path / "work", workers=1, merges=100)
    )
    assert list(result["steps"]) == ["clean", "learn", "segment", "binarise"]
    assert all(seconds > 0 for seconds in result["steps"].values())
    assert result["kept"] > 250
    json.dumps(result)
