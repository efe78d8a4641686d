"""Tables of language models: means, PRR and PEoP computed by hand, beside the paper's numbers."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from fairseq_mhe.report.language_table import perplexity_block, task_blocks
from fairseq_mhe.report.table import Block

PARAMETERS = {"sha": 1000, "mha": 3000, "mhe_mul": 1010, "collaborative": 7}
TWO_DASHES = ["-", "-"]


def tasks_table(
    scores: Mapping[str, Mapping[str, list[float]]], **commonest: float | None
) -> list[Block]:
    """Return the blocks for kind -> task -> score of each seed."""
    rows: list[dict[str, Any]] = []
    for kind, of_kind in scores.items():
        row = {"attention": kind, "attention_parameters": PARAMETERS[kind], "nats": 5.12345}
        rows.append({**row, "scores": of_kind})
    tasks = dict.fromkeys(next(iter(scores.values())))
    return task_blocks(rows, {**tasks, **commonest})


def cells(blocks: Sequence[Block], heading: str) -> dict[str, list[str]]:
    """Return kind -> the other cells of its row, in the block with a heading."""
    (block,) = [block for block in blocks if block.heading == heading]
    return {cells[0]: cells[1:] for cells in block.lines()}


def test_a_benchmark_averages_its_tasks_for_each_seed() -> None:
    scores = {
        "sha": {"rte": [50.0, 52.0], "sst2": [80.0, 82.0], "squad1": [60.0, 60.0]},
        "mha": {"rte": [60.0, 64.0], "sst2": [90.0, 90.0], "squad1": [80.0, 80.0]},
        "mhe_mul": {"rte": [58.0, 58.0], "sst2": [86.0, 90.0], "squad1": [75.0, 75.0]},
    }
    blocks = tasks_table(scores, rte=52.7, sst2=None)
    glue = cells(blocks, "GLUE (rte, sst2 alone)")
    # seeds: mha 75, 77; sha 65, 67; mhe_mul 72, 74
    assert glue["mha"][:4] == ["3,000", "76.00 ± 1.41", "81.9", "100.0"]
    assert glue["mhe_mul"][1:5] == ["73.00 ± 1.41", "80.6", f"{7300 / 76:.1f}", "98.3"]
    assert glue["mhe_mul"][5] == f"{(73 / 66 - 1) / 0.01:.2f}"
    squad = cells(blocks, "SQuAD1.1")
    assert squad["mhe_mul"][1:5] == ["75.00 ± 0.00", "85.9", "93.8", "97.0"]
    # the paper's PEoP, as printed
    assert squad["mhe_mul"][6] == "13.19"
    assert squad["sha"][5:] == TWO_DASHES
    by_task = cells(blocks, "By task")
    assert by_task["attention"][1] == "pre-training, nats"
    assert by_task["mhe_mul"][1:5] == ["5.123", "58.00 ± 0.00", "88.00 ± 2.83", "75.00 ± 0.00"]
    merits = [f"{100 * 221 / 232:.1f}", f"{(221 / 192 - 1) / 0.01:.2f}"]
    assert by_task["mhe_mul"][-3:] == ["73.67", *merits]
    assert by_task["always the commonest label"] == [*TWO_DASHES, "52.70", *["-"] * 5]


@pytest.mark.parametrize(
    ("reference", "shown"), [(-2.0, False), (0.0, False), (3.0, False), (6.4, False), (6.6, True)]
)
def test_prr_and_peop_need_a_reference_that_has_learned(reference: float, shown: bool) -> None:
    """CoLA's score of 6.7 beside an mha of 3.0 was "PRR 222.8"; both predict next to nothing."""
    scores = {
        "sha": {"cola": [reference]},
        "mha": {"cola": [reference]},
        "mhe_mul": {"cola": [7.0]},
    }
    blocks = tasks_table(scores, cola=1.5)
    by_task = cells(blocks, "By task")
    assert (by_task["mhe_mul"][-2:] == TWO_DASHES) == (not shown)
    assert (by_task["mha"][-2:] == TWO_DASHES) == (not shown)
    assert (cells(blocks, "GLUE (cola alone)")["mhe_mul"][3] == "-") == (not shown)
    assert by_task["always the commonest label"][-3:] == ["1.50", *TWO_DASHES]


def test_perplexity_averages_seeds_and_is_infinite_after_divergence() -> None:
    mqa = {"attention": "mqa", "attention_parameters": 12, "kv_bytes_per_token": 256}
    sha = {"attention": "sha", "attention_parameters": 5, "kv_bytes_per_token": 4}
    block = perplexity_block([{**mqa, "nats": [2.0, 2.2]}, {**sha, "nats": [2.0, 750.0]}])
    values = [math.exp(2.0), math.exp(2.2)]
    deviation = abs(values[0] - values[1]) / math.sqrt(2)
    perplexity = f"{sum(values) / 2:.2f} ± {deviation:.2f}"
    assert cells([block], "")["mqa"] == ["12", "256", "2.1000 ± 0.1414", perplexity]
    assert cells([block], "")["sha"][3] == "inf"
