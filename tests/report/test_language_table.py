"""The tables of language models: arithmetic by hand, and the paper's own figures beside."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path

import pytest

from fairseq_mhe.common.errors import UserError
from fairseq_mhe.common.files import write_json
from fairseq_mhe.common.folder_version import FOLDER_VERSION
from fairseq_mhe.experiments.nlu_table import LanguageTable
from fairseq_mhe.prepare.data_folder import TextFolder
from fairseq_mhe.report.language_table import benchmark_of, perplexity_block, task_blocks
from fairseq_mhe.report.published import SCORES
from fairseq_mhe.report.table import Block

PARAMETERS = {"sha": 1000, "mha": 3000, "mhe_mul": 1010}


def rows(blocks: Sequence[Block], heading: str) -> dict[str, list[str]]:
    """Kind -> its cells, of the block with a heading."""
    (block,) = [block for block in blocks if block.heading == heading]
    return {cells[0]: cells[1:] for cells in block.lines()}


def test_a_benchmark_is_the_mean_of_its_tasks_for_each_seed() -> None:
    scores = {
        "sha": {"rte": [50.0, 52.0], "sst2": [80.0, 82.0], "squad1": [60.0, 60.0]},
        "mha": {"rte": [60.0, 64.0], "sst2": [90.0, 90.0], "squad1": [80.0, 80.0]},
        "mhe_mul": {"rte": [58.0, 58.0], "sst2": [86.0, 90.0], "squad1": [75.0, 75.0]},
    }
    blocks = task_blocks(scores, PARAMETERS)
    glue = rows(blocks, "GLUE (rte, sst2 alone)")
    # seeds: mha 75, 77; sha 65, 67; mhe_mul 72, 74
    assert glue["mha"][:4] == ["3,000", "76.00 ± 1.41", "81.9", "100.0"]
    assert glue["mhe_mul"][1:5] == ["73.00 ± 1.41", "80.6", f"{7300 / 76:.1f}", "98.4"]
    assert glue["mhe_mul"][5] == f"{(73 / 66 - 1) / 0.01:.2f}"
    squad = rows(blocks, "SQuAD1.1")
    assert squad["mhe_mul"][1:5] == ["75.00 ± 0.00", "85.9", "93.8", "97.0"]
    # the paper's, as printed
    assert float(squad["mhe_mul"][6]) == pytest.approx(13.19, abs=0.05)
    assert squad["sha"][5:] == ["-", "-"]
    by_task = rows(blocks, "By task")["mhe_mul"]
    assert by_task[1:4] == ["58.00 ± 0.00", "88.00 ± 2.83", "75.00 ± 0.00"]
    assert by_task[-3:] == ["73.67", f"{100 * 221 / 232:.1f}", f"{(221 / 192 - 1) / 0.01:.2f}"]


def test_a_whole_benchmark_and_a_kind_that_the_paper_does_not_have() -> None:
    tasks = ["cola", "sst2", "mrpc", "qqp", "stsb", "mnli", "qnli", "rte"]
    scores = {"collaborative": {task: [50.0] for task in [*tasks, "wnli"]}}
    blocks = task_blocks(scores, {"collaborative": 7})
    assert rows(blocks, "GLUE")["collaborative"] == ["7", "50.00", *["-"] * 5]
    assert "collaborative" not in SCORES


def test_every_task_is_of_its_benchmark() -> None:
    names = [benchmark_of(task) for task in ("wnli", "integration", "qnli", "record", "squad2")]
    assert names == [None, None, "GLUE", "SuperGLUE", "SQuAD2.0"]


def test_loss_of_pre_training_and_the_commonest_label() -> None:
    scores = {"mha": {"rte": [60.0], "cola": [20.0]}, "sha": {"rte": [50.0], "cola": [10.0]}}
    losses = {"mha": 5.12345, "sha": None}
    commonest = {"rte": 52.7, "cola": None}
    by_task = rows(task_blocks(scores, PARAMETERS, losses, commonest), "By task")
    assert by_task["attention"][1] == "pre-training, nats"
    assert (by_task["mha"][1], by_task["sha"][1]) == ("5.123", "-")
    assert by_task["always the commonest label"] == ["-", "-", "52.70", *["-"] * 4]


@pytest.mark.parametrize("worst", [-2.0, 0.0])
def test_nothing_is_a_share_of_a_score_that_is_no_better_than_chance(worst: float) -> None:
    """Matthews' correlation may be negative: -3 of -2 was "PRR 150.0"."""
    scores = {"sha": {"cola": [worst]}, "mha": {"cola": [worst]}, "mhe_mul": {"cola": [-3.0]}}
    by_task = rows(task_blocks(scores, PARAMETERS), "By task")
    assert by_task["mhe_mul"][3:] == by_task["mha"][3:] == ["-", "-"]


def test_perplexity_is_of_each_seed_and_infinite_after_a_training_that_diverged() -> None:
    nats = {"mqa": [2.0, 2.2], "sha": [2.0, 5000.0]}
    block = perplexity_block(nats, {"mqa": 12, "sha": 5}, {"mqa": 256, "sha": 4})
    values = [math.exp(2.0), math.exp(2.2)]
    deviation = abs(values[0] - values[1]) / math.sqrt(2)
    mqa, sha = rows([block], "")["mqa"], rows([block], "")["sha"]
    assert mqa[:3] == ["12", "256", "2.1000 ± 0.1414"]
    assert mqa[3] == f"{sum(values) / 2:.2f} ± {deviation:.2f}"
    assert sha[3] == "inf"


def test_seeds_of_one_model_in_different_precision_are_refused(tmp_path: Path) -> None:
    data = TextFolder(tmp_path, "text")
    for seed, precision in ((1, "float32"), (2, "bf16")):
        folder = tmp_path / f"transformer_lm_mhe_tiny-mha-seed{seed}"
        settings = {"seed": seed, "options": {"bf16": precision == "bf16"}}
        config = {"folder_version": FOLDER_VERSION, "settings": settings}
        write_json(folder / "config.json", config)
    table = LanguageTable("transformer_lm_mhe_tiny", data, [], [1, 2], tmp_path)
    with pytest.raises(UserError, match=r"has precision .*bf16.*float32.*make no table"):
        table._nats("mha")
