"""Tables of language models: benchmarks beside the paper's numbers, single tasks, perplexity."""

import math
import statistics
from collections.abc import Mapping, Sequence
from typing import Any

from fairseq_mhe.prepare.tasks import TASKS
from fairseq_mhe.report.published import BENCHMARKS, LANGUAGE_MODELS, peop, prr
from fairseq_mhe.report.table import Block, Row, columns, seeds_column


def task_blocks(
    rows: Sequence[Row], commonest: Mapping[str, float | None]
) -> list[Block]:
    """Return a block for each benchmark, with the paper's numbers, then a block of all tasks.

    A row holds "attention", "attention_parameters", "nats" (the loss of pre-training) and "scores":
    task -> the score of each seed. ``commonest``: task -> the score of always predicting the
    commonest label, or None. Without a row of mha PRR is a dash, without a row of sha PEoP.
    """
    tasks = list(commonest)
    blocks = []
    for suite, (benchmark, task_count) in BENCHMARKS.items():
        included = [t for t in tasks if suite in (t, TASKS[t].suite) and t != "wnli"]
        if included:
            heading = benchmark
            if len(included) < task_count:
                heading += f" ({', '.join(included)} alone)"
            measured = _with_measures(rows, included)
            for row in measured:
                published = LANGUAGE_MODELS[benchmark].get(row["attention"], [])
                row |= zip(("paper", "paper_prr", "paper_peop"), published, strict=False)
            blocks.append(Block(columns("benchmark"), measured, heading))
    task_rows = [{**row, **row["scores"]} for row in _with_measures(rows, tasks)]
    known = {task: [score] for task, score in commonest.items() if score is not None}
    commonest_row: dict[str, Any] = {"attention": "always the commonest label", **known}
    if len(known) == len(tasks):
        commonest_row["mean"] = statistics.mean(score for (score,) in known.values())
    score_columns = [seeds_column(task, task) for task in tasks]
    task_columns = [*columns("tasks"), *score_columns, *columns("mean")]
    heading = "By task" if blocks else ""
    return [*blocks, Block(task_columns, [*task_rows, commonest_row], heading)]


def _with_measures(rows: Sequence[Row], tasks: Sequence[str]) -> list[dict[str, Any]]:
    """Add to each row "score" (of each seed the mean over ``tasks``), "mean", "prr" and "peop"."""
    by_kind = {}
    for row in rows:
        seeds = zip(*(row["scores"][task] for task in tasks), strict=True)
        score = [statistics.mean(scores_of_seed) for scores_of_seed in seeds]
        mean = statistics.mean(score)
        by_kind[row["attention"]] = {**row, "score": score, "mean": mean}
    mha = by_kind.get("mha")
    sha = by_kind.get("sha")
    # A mean of Matthews' correlations may be 0 or less: a ratio to it would mean nothing.
    for row in by_kind.values():
        size = row["attention_parameters"]
        if mha and mha["mean"] > 0:
            row["prr"] = prr(row["mean"], mha["mean"])
        if sha and sha["mean"] > 0 and size != sha["attention_parameters"]:
            sha_size = sha["attention_parameters"]
            row["peop"] = peop(row["mean"], sha["mean"], size, sha_size)
    return list(by_kind.values())


def perplexity_block(rows: Sequence[Row]) -> Block:
    """Return a block of causal models; a row's "nats" are the loss per subword of each seed."""
    extended = []
    for row in rows:
        extended.append({**row, "perplexity": list(map(perplexity_of, row["nats"]))})
    return Block(columns("perplexity"), extended)


def perplexity_of(nats: float) -> float:
    """Return exp(nats); infinity if exp would overflow, as after a training that diverged."""
    return math.exp(nats) if nats < 700 else math.inf
