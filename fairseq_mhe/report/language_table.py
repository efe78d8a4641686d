"""Tables of language models: benchmarks beside the paper's numbers, single tasks, perplexity."""

import math
import statistics
from collections.abc import Mapping, Sequence
from typing import Any

from fairseq_mhe.prepare.tasks import TASKS
from fairseq_mhe.report import columns
from fairseq_mhe.report.published import BENCHMARKS, LANGUAGE_MODELS, peop, prr
from fairseq_mhe.report.table import Block, Values, seeds_column

#: A reference that is not as many points above the commonest label has learned too little: PRR
#: and PEoP, which divide by its score, mean nothing.
MIN_ABOVE_COMMONEST = 5.0


def task_blocks(
    rows: Sequence[Values], commonest: Mapping[str, float | None]
) -> list[Block]:
    """Return a block for each benchmark, with the paper's numbers, then a block of all tasks.

    A row holds "attention", "attention_parameters", "nats" (the loss of pre-training) and "scores":
    task -> the score of each seed. ``commonest``: task -> the score of always predicting the
    commonest label, or None. PRR is a dash without a row of mha that has learned the tasks, PEoP
    without such a row of sha (see `MIN_ABOVE_COMMONEST`).
    """
    tasks = list(commonest)
    blocks = []
    for suite, (benchmark, task_count) in BENCHMARKS.items():
        included = [t for t in tasks if suite in (t, TASKS[t].suite) and t != "wnli"]
        if included:
            heading = benchmark
            if len(included) < task_count:
                heading += f" ({', '.join(included)} alone)"
            measured = _with_measures(rows, included, commonest)
            for row in measured:
                published = LANGUAGE_MODELS[benchmark].get(row["attention"], [])
                row |= zip(("paper", "paper_prr", "paper_peop"), published, strict=False)
            blocks.append(Block(columns.BENCHMARK, measured, heading))
    task_rows = [
        {**row, **row["scores"]} for row in _with_measures(rows, tasks, commonest)
    ]
    known = {task: [score] for task, score in commonest.items() if score is not None}
    commonest_row: dict[str, Any] = {"attention": "always the commonest label", **known}
    if len(known) == len(tasks):
        commonest_row["mean"] = statistics.mean(score for (score,) in known.values())
    score_columns = [seeds_column(task, task) for task in tasks]
    task_columns = [*columns.TASKS, *score_columns, *columns.MEAN]
    heading = "By task" if blocks else ""
    return [*blocks, Block(task_columns, [*task_rows, commonest_row], heading)]


def _with_measures(
    rows: Sequence[Values], tasks: Sequence[str], commonest: Mapping[str, float | None]
) -> list[dict[str, Any]]:
    """Add to each row "score" (of each seed the mean over ``tasks``), "mean", "prr" and "peop"."""
    by_kind = {}
    for row in rows:
        seeds = zip(*(row["scores"][task] for task in tasks), strict=True)
        score = [statistics.mean(scores_of_seed) for scores_of_seed in seeds]
        mean = statistics.mean(score)
        by_kind[row["attention"]] = {**row, "score": score, "mean": mean}
    least = statistics.mean(commonest[task] or 0.0 for task in tasks)
    least += MIN_ABOVE_COMMONEST
    mha = by_kind.get("mha")
    sha = by_kind.get("sha")
    for row in by_kind.values():
        size = row["attention_parameters"]
        if mha and mha["mean"] >= least:
            row["prr"] = prr(row["mean"], mha["mean"])
        if sha and sha["mean"] >= least and size != sha["attention_parameters"]:
            sha_size = sha["attention_parameters"]
            row["peop"] = peop(row["mean"], sha["mean"], size, sha_size)
    return list(by_kind.values())


def notes_on_tasks(
    blocks: Sequence[Block], commonest: Mapping[str, float | None]
) -> list[str]:
    """Return notes on the columns of `task_blocks`."""
    notes = ["A task's score: mean of its metrics after the last update, on the dev set."]
    label = "The commonest label: of the training examples"
    if "squad2" in commonest:
        notes.append(
            "SQuAD 2.0: F1 by the best no-answer threshold, as officially evaluated."
        )
        label += "; of SQuAD 2.0, no answer"
    notes.append(f"{label}.")
    if any(heading == "paper" for block in blocks for heading, _ in block.columns):
        notes.append("paper: models of BERT-base's size, all tasks of a benchmark.")
    points = f"{MIN_ABOVE_COMMONEST:g} points above always the commonest label"
    notes.append(f"PRR is -, unless mha scores {points}; PEoP, unless sha does.")
    return notes


def perplexity_block(rows: Sequence[Values]) -> Block:
    """Return a block of causal models; a row's "nats" are the loss per subword of each seed."""
    extended = []
    for row in rows:
        extended.append({**row, "perplexity": list(map(perplexity_of, row["nats"]))})
    return Block(columns.PERPLEXITY, extended)


def perplexity_of(nats: float) -> float:
    """Return exp(nats); infinity if exp would overflow, as after a training that diverged."""
    return math.exp(nats) if nats < 700 else math.inf
