"""Tables of language models: benchmarks beside the paper's numbers, single tasks, perplexity."""

import math
import statistics
from collections.abc import Mapping, Sequence
from typing import Any

from fairseq_mhe.prepare.tasks import TASKS
from fairseq_mhe.report.published import LANGUAGE_MODELS, peop, prr
from fairseq_mhe.report.table import Block, Row, columns, over_seeds

#: Suite or task -> the paper's benchmark, and the number of tasks that its score averages (GLUE's
#: leaves out WNLI, as is usual).
_BENCHMARKS = {
    "glue": ("GLUE", 8),
    "superglue": ("SuperGLUE", 8),
    "squad1": ("SQuAD1.1", 1),
    "squad2": ("SQuAD2.0", 1),
}


def task_blocks(
    rows: Sequence[Row], commonest: Mapping[str, float | None]
) -> list[Block]:
    """Return a block for each benchmark, with the paper's numbers, then a block of all tasks.

    A row holds "attention", "attention_parameters", "nats" (the loss of pre-training) and "scores":
    task -> the score of each seed. ``commonest``: task -> the score of always predicting the
    commonest label. PRR needs the row of mha, PEoP the row of sha; without it a dash is shown.
    """
    tasks = list(commonest)
    blocks = []
    for suite, (benchmark, task_count) in _BENCHMARKS.items():
        included = [t for t in tasks if suite in (t, TASKS[t].suite) and t != "wnli"]
        if included:
            part = (
                "" if len(included) == task_count else f" ({', '.join(included)} alone)"
            )
            compared = _with_measures(rows, included)
            for row in compared:
                printed = LANGUAGE_MODELS[benchmark].get(row["attention"], [])
                row |= zip(("paper", "paper_prr", "paper_peop"), printed, strict=False)
            blocks.append(Block(columns("benchmark"), compared, f"{benchmark}{part}"))
    task_rows = [{**row, **row["scores"]} for row in _with_measures(rows, tasks)]
    known = {task: score for task, score in commonest.items() if score is not None}
    commonest_row: dict[str, Any] = {task: [score] for task, score in known.items()}
    commonest_row["attention"] = "always the commonest label"
    if len(known) == len(tasks):
        commonest_row["mean"] = statistics.mean(known.values())
    score_columns = [over_seeds(task, task) for task in tasks]
    task_columns = [*columns("tasks"), *score_columns, *columns("mean")]
    heading = "By task" if blocks else ""
    return [*blocks, Block(task_columns, [*task_rows, commonest_row], heading)]


def _with_measures(rows: Sequence[Row], tasks: Sequence[str]) -> list[dict[str, Any]]:
    """Add to each row "score", the mean over tasks of each seed, and its "mean", "prr", "peop"."""
    kinds = {}
    for row in rows:
        seeds = zip(*(row["scores"][task] for task in tasks), strict=True)
        score = [statistics.mean(of_seed) for of_seed in seeds]
        kinds[row["attention"]] = {**row, "score": score, "mean": statistics.mean(score)}
    mha = kinds.get("mha")
    sha = kinds.get("sha")
    # A mean may be 0 or less (Matthews' correlation): no ratio to it makes sense.
    for row in kinds.values():
        size = row["attention_parameters"]
        if mha and mha["mean"] > 0:
            row["prr"] = prr(row["mean"], mha["mean"])
        if sha and sha["mean"] > 0 and size != sha["attention_parameters"]:
            sha_size = sha["attention_parameters"]
            row["peop"] = peop(row["mean"], sha["mean"], size, sha_size)
    return list(kinds.values())


def perplexity_block(rows: Sequence[Row]) -> Block:
    """Return a row for each causal model; "nats" of a row is the loss per subword of each seed."""
    extended = []
    for row in rows:
        extended.append({**row, "perplexity": list(map(perplexity_of, row["nats"]))})
    return Block(columns("perplexity"), extended)


def perplexity_of(nats: float) -> float:
    """Return exp(nats), or infinity for a loss that would overflow, as of a diverged training."""
    return math.exp(nats) if nats < 700 else math.inf
