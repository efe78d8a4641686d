"""The tables of language models: benchmarks beside the paper's, tasks, and perplexity."""

import math
import statistics
from collections.abc import Mapping, Sequence

from fairseq_mhe.common.tables import align
from fairseq_mhe.models.build import build_setting
from fairseq_mhe.models.counting import attention_parameters
from fairseq_mhe.prepare.tasks import TASKS
from fairseq_mhe.report.published import SCORES, peop, prr
from fairseq_mhe.report.published import TASKS as BENCHMARKS
from fairseq_mhe.report.results import deviation

#: Task -> scores of the seeds.
Scores = Mapping[str, Sequence[float]]
_NONE = "-"
#: How many tasks the paper's means are of: GLUE's without WNLI, as is usual.
_WHOLE = {"GLUE": 8, "SuperGLUE": 8, "SQuAD1.1": 1, "SQuAD2.0": 1}
_SUITES = {"glue": "GLUE", "superglue": "SuperGLUE"}
_SQUAD = {"squad1": "SQuAD1.1", "squad2": "SQuAD2.0"}


def benchmark_of(task: str) -> str | None:
    """The paper's benchmark that a task is of, None where it is of none."""
    if task == "wnli":
        return None
    return _SQUAD.get(task) or _SUITES.get(TASKS[task].suite)


def language_tables(
    found: Mapping[str, Scores],
    parameters: Mapping[str, int],
    losses: Mapping[str, float | None] | None = None,
    commonest: Mapping[str, float | None] | None = None,
) -> str:
    """Benchmarks with the paper's figures beside ours, and below them a column a task.

    A task's score is the mean over seeds, with the standard deviation where there are several; a
    benchmark's the mean of its tasks for each seed, and likewise. PRR is of mha's score, PEoP of
    sha's score and parameters, as the paper has them; a dash stands where these were not trained.

    Args:
        found: kind of attention -> task -> scores of the seeds.
        parameters: kind -> attention parameters.
        losses, commonest: as of `table`.
    """
    tasks = list(next(iter(found.values())))
    blocks = []
    for name in BENCHMARKS:
        own = [task for task in tasks if benchmark_of(task) == name]
        if own:
            told = f"{name}" if len(own) == _WHOLE[name] else f"{name} ({', '.join(own)} alone)"
            blocks += [f"## {told}", _benchmark(name, own, found, parameters)]
    last = ["## By task"] if blocks else []
    tasks_table = table(found, parameters, losses, commonest)
    return "\n\n".join([*blocks, *last, tasks_table])


def _benchmark(
    name: str, tasks: Sequence[str], found: Mapping[str, Scores], parameters: Mapping[str, int]
) -> str:
    column = BENCHMARKS.index(name)
    seeds = {kind: _by_seed([scores[task] for task in tasks]) for kind, scores in found.items()}
    means = {kind: statistics.mean(values) for kind, values in seeds.items()}
    theirs = {kind: scores[column] for kind, scores in SCORES.items()}
    sizes = {kind: attention_parameters(build_setting("bert-base", kind)) for kind in theirs}
    rows = []
    for kind, values in seeds.items():
        paper = str(theirs.get(kind, _NONE))
        line = [kind, f"{parameters[kind]:,}", with_deviation(values), paper]
        line += [_prr(kind, means), _prr(kind, theirs)]
        rows.append([*line, _peop(kind, means, parameters), _peop(kind, theirs, sizes)])
    headings = ["attention", "attention parameters", "score", "paper", "PRR", "paper", "PEoP"]
    return align([*headings, "paper"], rows, "markdown")


def _by_seed(scores: Sequence[Sequence[float]]) -> list[float]:
    """The mean of tasks for each seed."""
    return [statistics.mean(values) for values in zip(*scores, strict=True)]


def _prr(kind: str, means: Mapping[str, float]) -> str:
    if kind not in means or means.get("mha", 0) <= 0:  # Matthews' correlation may be below 0
        return _NONE
    return f"{prr(means[kind], means['mha']):.1f}"


def _peop(kind: str, means: Mapping[str, float], parameters: Mapping[str, int]) -> str:
    known = kind in means and means.get("sha", 0) > 0
    if not known or parameters[kind] == parameters["sha"]:
        return _NONE
    return f"{peop(means[kind], means['sha'], parameters[kind], parameters['sha']):.2f}"


def table(
    found: Mapping[str, Scores],
    parameters: Mapping[str, int],
    losses: Mapping[str, float | None] | None = None,
    commonest: Mapping[str, float | None] | None = None,
) -> str:
    """A line a kind: attention parameters, the score of each task, their mean, PRR and PEoP.

    ``losses``: that of pre-training on the validation text, in nats. ``commonest``: task -> what
    always giving the commonest label scores, for a line at the end.
    """
    means = {
        name: statistics.mean(statistics.mean(values) for values in scores.values())
        for name, scores in found.items()
    }
    tasks = list(next(iter(found.values())))
    rows = []
    for name, scores in found.items():
        line = [name, f"{parameters[name]:,}"]
        if losses:
            loss = losses[name]
            line.append(_NONE if loss is None else f"{loss:.3f}")
        line += [*(with_deviation(scores[task]) for task in tasks), f"{means[name]:.2f}"]
        rows.append([*line, _prr(name, means), _peop(name, means, parameters)])
    told = ["pre-training, nats"] if losses else []
    if commonest:
        values = [commonest[task] for task in tasks]
        cells = [_NONE if value is None else f"{value:.2f}" for value in values]
        known = [value for value in values if value is not None]
        mean = f"{statistics.mean(known):.2f}" if len(known) == len(values) else _NONE
        nothing = [_NONE] * (1 + len(told))
        rows.append(["always the commonest label", *nothing, *cells, mean, _NONE, _NONE])
    headings = ("attention", "attention parameters", *told, *tasks, "mean", "PRR", "PEoP")
    return align(headings, rows, "markdown")


def perplexity_table(
    nats: Mapping[str, Sequence[float]], parameters: Mapping[str, int], cache: Mapping[str, int]
) -> str:
    """A line a kind of causal model: attention parameters, cache, and perplexity of the valid text.

    Args:
        nats: kind -> nats per subword of the seeds.
        parameters: kind -> attention parameters.
        cache: kind -> bytes of keys and values for each token, in float32.
    """
    rows = []
    for kind, values in nats.items():
        perplexity = [perplexity_of(value) for value in values]
        line = [kind, f"{parameters[kind]:,}", f"{cache[kind]:,}"]
        rows.append([*line, with_deviation(values, 4), with_deviation(perplexity)])
    headings = ("attention", "attention parameters", "cache bytes/token", "nats per subword")
    return align([*headings, "perplexity of a subword"], rows, "markdown")


def perplexity_of(nats: float) -> float:
    """e to the ``nats``; infinity where that is too large, as of a training that diverged."""
    try:
        return math.exp(nats)
    except OverflowError:
        return math.inf


def with_deviation(values: Sequence[float], digits: int = 2) -> str:
    """The mean, with the standard deviation where there are several values, all of them finite."""
    mean, spread = f"{statistics.mean(values):.{digits}f}", deviation(values)
    return mean if spread is None else f"{mean} ± {spread:.{digits}f}"
