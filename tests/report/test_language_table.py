"""The tables of language models: arithmetic by hand, and the paper's own figures beside."""

from __future__ import annotations

import math

import pytest

from fairseq_mhe.report.language_table import benchmark_of, language_tables, perplexity_table
from fairseq_mhe.report.published import SCORES

PARAMETERS = {"sha": 1000, "mha": 3000, "mhe_mul": 1010}


def rows(text: str, heading: str) -> dict[str, list[str]]:
    """Kind -> its cells, of the table below a heading."""
    block = text.split(f"## {heading}\n\n")[1].split("\n\n")[0]
    lines = [[cell.strip() for cell in line.strip("|").split("|")] for line in block.split("\n")]
    return {cells[0]: cells[1:] for cells in (lines[0], *lines[2:])}


def test_a_benchmark_is_the_mean_of_its_tasks_for_each_seed() -> None:
    found = {
        "sha": {"rte": [50.0, 52.0], "sst2": [80.0, 82.0], "squad1": [60.0, 60.0]},
        "mha": {"rte": [60.0, 64.0], "sst2": [90.0, 90.0], "squad1": [80.0, 80.0]},
        "mhe_mul": {"rte": [58.0, 58.0], "sst2": [86.0, 90.0], "squad1": [75.0, 75.0]},
    }
    text = language_tables(found, PARAMETERS)
    glue = rows(text, "GLUE (rte, sst2 alone)")
    # seeds: mha 75, 77; sha 65, 67; mhe_mul 72, 74
    assert glue["mha"][:4] == ["3,000", "76.00 ± 1.41", "81.9", "100.0"]
    assert glue["mhe_mul"][1:5] == ["73.00 ± 1.41", "80.6", f"{7300 / 76:.1f}", "98.4"]
    assert glue["mhe_mul"][5] == f"{(73 / 66 - 1) / 0.01:.2f}"
    squad = rows(text, "SQuAD1.1")
    assert squad["mhe_mul"][1:5] == ["75.00 ± 0.00", "85.9", "93.8", "97.0"]
    # the paper's, as printed
    assert float(squad["mhe_mul"][6]) == pytest.approx(13.19, abs=0.05)
    assert squad["sha"][5:] == ["-", "-"]
    assert rows(text, "By task")["mhe_mul"][1:4] == ["58.00 ± 0.00", "88.00 ± 2.83", "75.00 ± 0.00"]


def test_a_whole_benchmark_and_a_kind_of_ours() -> None:
    tasks = ["cola", "sst2", "mrpc", "qqp", "stsb", "mnli", "qnli", "rte"]
    found = {"collaborative": {task: [50.0] for task in [*tasks, "wnli"]}}
    text = language_tables(found, {"collaborative": 7})
    assert rows(text, "GLUE")["collaborative"] == ["7", "50.00", *["-"] * 5]
    assert "collaborative" not in SCORES


def test_every_task_is_of_its_benchmark() -> None:
    assert benchmark_of("wnli") is None
    assert benchmark_of("integration") is None
    assert [benchmark_of(task) for task in ("qnli", "record", "squad2")] == [
        "GLUE",
        "SuperGLUE",
        "SQuAD2.0",
    ]


def test_perplexity_is_of_each_seed() -> None:
    text = perplexity_table({"mqa": [2.0, 2.2]}, {"mqa": 12}, {"mqa": 256})
    cells = [cell.strip() for cell in text.split("\n")[2].strip("|").split("|")]
    values = [math.exp(2.0), math.exp(2.2)]
    deviation = abs(values[0] - values[1]) / math.sqrt(2)
    assert cells[:4] == ["mqa", "12", "256", "2.1000 ± 0.1414"]
    assert cells[4] == f"{sum(values) / 2:.2f} ± {deviation:.2f}"


def test_the_loss_of_pre_training_has_a_column() -> None:
    found = {"mha": {"rte": [60.0]}, "sha": {"rte": [50.0]}}
    text = language_tables(found, PARAMETERS, losses={"mha": 5.12345, "sha": None})
    by_task = rows(text, "By task")
    assert by_task["attention"][1] == "pre-training, nats"
    assert (by_task["mha"][1], by_task["sha"][1]) == ("5.123", "-")


def test_nothing_is_a_share_of_a_score_that_is_no_better_than_chance() -> None:
    """Matthews' correlation may be negative: -3 of -2 was "PRR 150.0"."""
    for worst in (-2.0, 0.0):
        found = {"sha": {"cola": [worst]}, "mha": {"cola": [worst]}, "mhe_mul": {"cola": [-3.0]}}
        by_task = rows(language_tables(found, PARAMETERS), "By task")
        assert by_task["mhe_mul"][3:] == by_task["mha"][3:] == ["-", "-"]


def test_a_diverged_run_has_infinite_perplexity() -> None:
    text = perplexity_table({"mqa": [2.0, 5000.0]}, {"mqa": 12}, {"mqa": 256})
    assert text.split("\n")[2].strip("| ").endswith(" inf")
