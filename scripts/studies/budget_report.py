"""The report of the equal-budget study: loss and BLEU against cache at one number of parameters."""

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from matplotlib.figure import Figure

from fairseq_mhe.common.files import read_json
from fairseq_mhe.models.build import build_on_meta
from fairseq_mhe.models.counting import costs
from fairseq_mhe.models.options import PLACES
from fairseq_mhe.report.plots import COLOURS, MARKS, pareto_front
from fairseq_mhe.report.significance import adjusted, noise_of, retained
from fairseq_mhe.runs.recipes import Recipe
from fairseq_mhe.runs.run import Run
from studies.budget_sizes import Size, by_option
from studies.study import Report, Study, or_dash
from studies.trainings import REFERENCE, Done, by_question, heading, of_unstable

MHA, MHE = "mha", "mhe_mul"
QUESTIONS = {
    REFERENCE: "the row's MHE-Mul, whose parameters are the budget by default, and the row's MHA",
    "new": "kinds that try to do more with MHE's parameters and cache",
    "start": "MHE-Mul with shared projections that start as small as mhe_conv's do",
    "existing": "the other kinds, narrowed or widened",
    "place": "the same parameters, more of them in one place: MHA there, narrow MHE-Mul elsewhere",
}
#: Source and target tokens of the sentences that multiply-adds are stated for.
_TOKENS = 25
_COLUMNS = (
    *("variant", "attention parameters", "of the budget", "KV bytes/token", "of the source"),
    "multiply-adds",
    *("valid loss", "sd", "to MHE-Mul", "p", "gap closed", "BLEU", "sd", "PRR"),
)
_Summaries = Sequence[dict[str, Any]]


def report(
    study: Study,
    recipe: Recipe,
    done: Done,
    left: Sequence[str],
    budget: int,
    unmet: Sequence[Size],
) -> Report:
    """What is known of the variants that are ``done``; ``left``: the names of the others.

    ``unmet``: the nearest sizes of kinds that cannot have as many parameters as the ``budget``.
    """
    summaries = summarise(study, done)
    columns = [*_COLUMNS, *(f"loss {seed}" for seed in summaries[0]["seeds"])]
    tables = by_question(QUESTIONS, columns, summaries, partial(_row, budget=budget))
    about = f"Equal budget: {recipe.row}, {budget:,} attention parameters"
    title, results = heading(about, study, recipe, done, left, summaries)
    results["budget"] = budget
    results["unmet"] = [{"size": size.name, "parameters": size.parameters} for size in unmet]
    notes = _notes(summaries, results, recipe, study.subset)
    draw = partial(_draw, summaries=summaries, title=title)
    return Report("equal-budget", title, results, tables, notes, draw)


def summarise(study: Study, done: Done) -> list[dict[str, Any]]:
    """One object for each variant: sizes, costs, losses and scores, and how they compare."""
    found = []
    for variant, runs in done.items():
        found.append(
            {
                "variant": variant.name,
                "question": variant.question,
                "attention": variant.attention,
                "options": list(variant.options),
                **read_json(runs[0].counts),
                "multiply_adds": _multiply_adds(runs[0]),
                **study.losses(runs),
                **study.over_seeds(runs),
            }
        )
    _compare(found)
    return found


def _multiply_adds(run: Run) -> float:
    """Of all attention, for each target token of a translation of as many tokens.

    The run's settings say it: of runs that were kept, the model is not there.
    """
    words, given = run.settings.get("options", []), by_option(run.settings["attention"])
    for flag, value in zip(words[::2], words[1::2], strict=True):
        name = flag.removeprefix("--").replace("-", "_")
        given[name] = int(value) if value.isdecimal() else value
    parts = costs(build_on_meta(run.row, MHE, **given), _TOKENS, (_TOKENS + 1) / 2)
    return sum(parts[place].source + parts[place].target for place in PLACES)


def _compare(found: _Summaries) -> None:
    """Add how each differs from MHE-Mul in loss, and how much of the gap to MHA it closes."""
    losses = {summary["variant"]: summary["losses"] for summary in found}
    by_name = {summary["variant"]: summary for summary in found}
    mha, mhe = by_name[MHA], by_name[MHE]
    noise = noise_of(losses)
    others = [summary for summary in found if summary is not mhe]
    p_values: Sequence[float | None] = [None] * len(others)
    if noise:
        p_values = adjusted([noise.p_value(losses, s["variant"], MHE) for s in others])
    for summary, p_value in zip(others, p_values, strict=True):
        summary["to_mhe_mul"] = round(summary["loss"] - mhe["loss"], 4)
        summary["p_value"] = p_value
    for summary in found:
        gap, closed = mhe["loss"] - mha["loss"], mhe["loss"] - summary["loss"]
        summary["gap_closed"] = round(100 * closed / gap, 1) if gap > 0 else None
        summary["prr"] = retained(summary["bleu"], mha["bleu"])


def _row(summary: Mapping[str, Any], budget: int) -> list[str]:
    parameters = summary["attention_parameters"]
    return [
        summary["variant"],
        f"{parameters:,}",
        f"{100 * parameters / budget:.1f}%",
        f"{summary['kv_bytes_per_token']:,}",
        or_dash(summary.get("kv_bytes_per_source_token"), ","),
        f"{summary['multiply_adds']:,.0f}",
        f"{summary['loss']:.3f}",
        or_dash(summary["loss_deviation"], ".3f"),
        or_dash(summary.get("to_mhe_mul"), "+.3f"),
        or_dash(summary.get("p_value"), ".3f"),
        or_dash(summary["gap_closed"], ".0f"),
        f"{summary['bleu']:.2f}",
        or_dash(summary["deviation"], ".2f"),
        or_dash(summary["prr"], ".1f"),
        *(f"{loss:.3f}" for loss in summary["losses"]),
    ]


def _notes(
    summaries: _Summaries, results: Mapping[str, Any], recipe: Recipe, subset: str
) -> list[str]:
    """What the columns mean, what the noise is, and what could not be."""
    training, unmet, left = recipe.training, results["unmet"], results["unfinished"]
    notes = [
        "Valid loss: the lowest of a training's validations, in bits a subword, mean over seeds; "
        f"BLEU `{results['signature']}` on {subset}, of the averaged checkpoint.",
        f"Everything but attention is the recipe of {recipe.row} over {training.updates:,} "
        f"updates, batches of {training.batch_tokens:,} tokens.",
        "Sizes by rule: with the row's number of heads and with half of it, or the nearest "
        "numbers of heads, the whole width that comes close enough to the budget; and as many "
        "heads of the row's width as do.",
        f"Multiply-adds: of all attention, a target token of {_TOKENS}, and a source token of as "
        "many. KV bytes: of the decoder's self-attention, float32; of the source: of its "
        "cross-attention for each source token, once for all hypotheses of a sentence.",
        "Gap closed: 0 is MHE-Mul's validation loss, 100 that of MHA, which has more parameters.",
    ]
    if noise := noise_of({summary["variant"]: summary["losses"] for summary in summaries}):
        notes.append(
            f"Noise of the loss: the standard deviation between seeds is {noise.deviation:.3f}, "
            f"pooled ({noise.freedom} degrees of freedom); p: t-test with it against MHE-Mul, "
            "adjusted for the number of variants (Benjamini and Hochberg)."
        )
        notes += of_unstable(noise)
    else:
        notes.append("One seed: nothing can be said of noise.")
    for size in unmet:
        notes.append(f"Too far from the budget: {size['size']} ({size['parameters']:,}), nearest.")
    if left:
        notes.append(f"Not done yet: {', '.join(left)}.")
    return notes


def _draw(figure: Figure, summaries: _Summaries, title: str) -> None:
    """Loss against cache, with the front of those that have the budget's parameters."""
    axes = figure.subplots()
    at_budget = [summary for summary in summaries if summary["variant"] != MHA]
    points = [(summary["kv_bytes_per_token"], -summary["loss"]) for summary in at_budget]
    front = [(cache, -quality) for cache, quality in pareto_front(points)]
    axes.step(*zip(*front, strict=True), where="post", color="#BBBBBB", linewidth=5, zorder=0)
    questions = list(QUESTIONS)
    for summary in summaries:
        place, index = summary["kv_bytes_per_token"], questions.index(summary["question"])
        style: dict[str, Any] = {
            "color": COLOURS[index],
            "marker": MARKS[index],
            "linestyle": "none",
        }
        fill = "none" if summary["variant"] == MHA else "full"
        axes.plot(place, summary["loss"], markersize=9, fillstyle=fill, **style)
        axes.plot([place] * len(summary["losses"]), summary["losses"], ".", color="#7F7F7F")
        name = (summary["variant"], (place, summary["loss"]), (7, 4))
        axes.annotate(*name, textcoords="offset points", fontsize=8)
    axes.set_xlabel("key/value cache, bytes a generated token (grey: Pareto front)", fontsize=11)
    told = "validation loss, bits a subword (dots: seeds; hollow: more parameters)"
    axes.set_ylabel(told, fontsize=11)
    axes.set_title(title, fontsize=12)
    axes.grid(alpha=0.3)
