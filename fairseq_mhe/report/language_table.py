"""The tables of language models: benchmarks beside the paper's, tasks, and perplexity."""

import math
import statistics
from collections.abc import Mapping, Sequence
from typing import Any

from fairseq_mhe.common.tables import column
from fairseq_mhe.models.build import build_setting
from fairseq_mhe.models.counting import attention_parameters
from fairseq_mhe.prepare.tasks import TASKS
from fairseq_mhe.report.published import SCORES, peop, prr
from fairseq_mhe.report.published import TASKS as BENCHMARKS
from fairseq_mhe.report.table import Block, over_seeds

#: Task -> scores of the seeds.
Scores = Mapping[str, Sequence[float]]
#: How many tasks the paper's means are of: GLUE's without WNLI, as is usual.
_WHOLE = {"GLUE": 8, "SuperGLUE": 8, "SQuAD1.1": 1, "SQuAD2.0": 1}
_SUITES = {"glue": "GLUE", "superglue": "SuperGLUE"}
_SQUAD = {"squad1": "SQuAD1.1", "squad2": "SQuAD2.0"}
_KIND = (
    column("attention", "attention"),
    column("attention parameters", "attention_parameters", ",", "-"),
)
_MERIT = (column("PRR", "prr", ".1f", "-"), column("PEoP", "peop", ".2f", "-"))
#: A benchmark's, with the paper's numbers.
_COMPARED = (
    *_KIND,
    over_seeds("score", "score"),
    column("paper", "paper", missing="-"),
    _MERIT[0],
    column("paper", "paper_prr", ".1f", "-"),
    _MERIT[1],
    column("paper", "paper_peop", ".2f", "-"),
)
_PERPLEXITY = (
    *_KIND,
    column("cache bytes/token", "cache", ","),
    over_seeds("nats per subword", "nats", 4),
    over_seeds("perplexity of a subword", "perplexity"),
)


def benchmark_of(task: str) -> str | None:
    """The paper's benchmark of a task, None where it has none."""
    if task == "wnli":
        return None
    return _SQUAD.get(task) or _SUITES.get(TASKS[task].suite)


def task_blocks(
    scores: Mapping[str, Scores],
    parameters: Mapping[str, int],
    losses: Mapping[str, float | None] | None = None,
    commonest: Mapping[str, float | None] | None = None,
) -> list[Block]:
    """Benchmarks with the paper's figures beside ours, and below them a column for each task.

    A task's score is the mean over seeds, with the standard deviation where there are several. A
    benchmark's score is the mean of its tasks for each seed. PRR is of mha's score, PEoP of sha's
    score and parameters; a dash stands where these were not trained.

    Args:
        scores: kind of attention -> task -> scores of the seeds.
        parameters: kind -> attention parameters.
        losses: kind -> loss of pre-training on the validation text, in nats.
        commonest: task -> the score of always giving the commonest label.
    """
    tasks = list(next(iter(scores.values())))
    blocks = []
    for name in BENCHMARKS:
        own = [task for task in tasks if benchmark_of(task) == name]
        if own:
            part = "" if len(own) == _WHOLE[name] else f" ({', '.join(own)} alone)"
            rows = _benchmark(BENCHMARKS.index(name), own, scores, parameters)
            blocks.append(Block(_COMPARED, rows, f"{name}{part}"))
    blocks.append(_by_task(tasks, scores, parameters, losses, commonest, bool(blocks)))
    return blocks


def _benchmark(
    index: int, tasks: Sequence[str], scores: Mapping[str, Scores], parameters: Mapping[str, int]
) -> list[dict[str, Any]]:
    """A row for each kind; ``index``: of the benchmark in the paper's table."""
    seeds = {}
    for kind, of_kind in scores.items():
        by_seed = zip(*(of_kind[task] for task in tasks), strict=True)
        seeds[kind] = [statistics.mean(values) for values in by_seed]
    means = {kind: statistics.mean(values) for kind, values in seeds.items()}
    theirs = {kind: printed[index] for kind, printed in SCORES.items()}
    sizes = {kind: attention_parameters(build_setting("bert-base", kind)) for kind in theirs}
    rows = []
    for kind, values in seeds.items():
        row = {"attention": kind, "attention_parameters": parameters[kind], "score": values}
        row |= {"prr": _prr(kind, means), "peop": _peop(kind, means, parameters)}
        row |= {"paper": theirs.get(kind), "paper_prr": _prr(kind, theirs)}
        rows.append({**row, "paper_peop": _peop(kind, theirs, sizes)})
    return rows


def _by_task(
    tasks: Sequence[str],
    scores: Mapping[str, Scores],
    parameters: Mapping[str, int],
    losses: Mapping[str, float | None] | None,
    commonest: Mapping[str, float | None] | None,
    below_others: bool,
) -> Block:
    means = {}
    for kind, of_kind in scores.items():
        means[kind] = statistics.mean(statistics.mean(values) for values in of_kind.values())
    rows: list[dict[str, Any]] = []
    for kind, of_kind in scores.items():
        row = {"attention": kind, "attention_parameters": parameters[kind], **of_kind}
        row |= {"mean": means[kind], "loss": losses and losses[kind]}
        rows.append({**row, "prr": _prr(kind, means), "peop": _peop(kind, means, parameters)})
    if commonest:
        known = {task: [value] for task, value in commonest.items() if value is not None}
        mean = statistics.mean(value for (value,) in known.values()) if known else None
        whole = mean if len(known) == len(tasks) else None
        rows.append({"attention": "always the commonest label", **known, "mean": whole})
    loss = [column("pre-training, nats", "loss", ".3f", "-")] if losses else []
    by_task = [over_seeds(task, task) for task in tasks]
    columns = [*_KIND, *loss, *by_task, column("mean", "mean", ".2f", "-"), *_MERIT]
    return Block(columns, rows, "By task" if below_others else "")


def _prr(kind: str, means: Mapping[str, float]) -> float | None:
    if kind not in means or means.get("mha", 0) <= 0:  # Matthews' correlation may be below 0
        return None
    return prr(means[kind], means["mha"])


def _peop(kind: str, means: Mapping[str, float], parameters: Mapping[str, int]) -> float | None:
    known = kind in means and means.get("sha", 0) > 0
    if not known or parameters[kind] == parameters["sha"]:
        return None
    return peop(means[kind], means["sha"], parameters[kind], parameters["sha"])


def perplexity_block(
    nats: Mapping[str, Sequence[float]], parameters: Mapping[str, int], cache: Mapping[str, int]
) -> Block:
    """A row for each kind of causal model: attention parameters, cache, perplexity on valid.

    Args:
        nats: kind -> nats per subword of the seeds.
        parameters: kind -> attention parameters.
        cache: kind -> bytes of keys and values for each token, in float32.
    """
    rows = []
    for kind, values in nats.items():
        row = {"attention": kind, "attention_parameters": parameters[kind], "cache": cache[kind]}
        row |= {"nats": values, "perplexity": [perplexity_of(value) for value in values]}
        rows.append(row)
    return Block(_PERPLEXITY, rows)


def perplexity_of(nats: float) -> float:
    """e to the ``nats``; infinity where that is too large, as after a training that diverged."""
    try:
        return math.exp(nats)
    except OverflowError:
        return math.inf
