"""The tables of language models: benchmarks beside the paper's, tasks, and perplexity."""

import math
import statistics
from collections.abc import Mapping, Sequence
from typing import Any

from fairseq_mhe.prepare.tasks import TASKS
from fairseq_mhe.report.published import LANGUAGE_MODELS, peop, prr
from fairseq_mhe.report.table import Block, Row, columns, over_seeds

#: Suite or task -> the paper's benchmark, and of how many tasks its score is the mean: of GLUE
#: without WNLI, as is usual.
_OF_PAPER = {
    "glue": ("GLUE", 8),
    "superglue": ("SuperGLUE", 8),
    "squad1": ("SQuAD1.1", 1),
    "squad2": ("SQuAD2.0", 1),
}


def task_blocks(
    rows: Sequence[Row], commonest: Mapping[str, float | None]
) -> list[Block]:
    """Benchmarks with the paper's figures beside ours, and below them a column for each task.

    PRR is of mha's score, PEoP of sha's score and parameters; a dash stands where these were not
    trained. ``rows``: of each kind "attention", "attention_parameters", "nats" of its pre-training,
    and "scores": task -> scores of the seeds; ``commonest``: task -> the score of always giving the
    commonest label.
    """
    tasks = list(commonest)
    blocks = []
    for suite, (name, whole) in _OF_PAPER.items():
        own = [t for t in tasks if suite in (t, TASKS[t].suite) and t != "wnli"]
        if own:
            part = "" if len(own) == whole else f" ({', '.join(own)} alone)"
            compared = _with_merits(rows, own)
            for row in compared:
                printed = LANGUAGE_MODELS[name].get(row["attention"], [])
                row |= zip(("paper", "paper_prr", "paper_peop"), printed, strict=False)
            blocks.append(Block(columns("benchmark"), compared, f"{name}{part}"))
    every = [{**row, **row["scores"]} for row in _with_merits(rows, tasks)]
    known = {task: score for task, score in commonest.items() if score is not None}
    last: dict[str, Any] = {task: [score] for task, score in known.items()}
    last["attention"] = "always the commonest label"
    if len(known) == len(tasks):
        last["mean"] = statistics.mean(known.values())
    of_tasks = [over_seeds(task, task) for task in tasks]
    every_column = [*columns("tasks"), *of_tasks, *columns("mean")]
    blocks.append(Block(every_column, [*every, last], "By task" if blocks else ""))
    return blocks


def _with_merits(rows: Sequence[Row], tasks: Sequence[str]) -> list[dict[str, Any]]:
    """The rows with "score", the mean of tasks for each seed, and its "mean", "prr" and "peop"."""
    scored = {}
    for row in rows:
        seeds = zip(*(row["scores"][task] for task in tasks), strict=True)
        score = [statistics.mean(of_seed) for of_seed in seeds]
        scored[row["attention"]] = {**row, "score": score, "mean": statistics.mean(score)}
    mha = scored.get("mha")
    sha = scored.get("sha")
    for row in scored.values():  # of means above 0: Matthews' correlation may be below
        score = row["mean"]
        size = row["attention_parameters"]
        if mha and mha["mean"] > 0:
            row["prr"] = prr(score, mha["mean"])
        if sha and sha["mean"] > 0 and size != sha["attention_parameters"]:
            row["peop"] = peop(score, sha["mean"], size, sha["attention_parameters"])
    return list(scored.values())


def perplexity_block(rows: Sequence[Row]) -> Block:
    """A row for each kind of causal model; "nats" of ``rows``: per subword, of the seeds."""
    more = []
    for row in rows:
        more.append({**row, "perplexity": list(map(perplexity_of, row["nats"]))})
    return Block(columns("perplexity"), more)


def perplexity_of(nats: float) -> float:
    """e to the ``nats``; infinity where that is too large, as after a training that diverged."""
    return math.exp(nats) if nats < 700 else math.inf
