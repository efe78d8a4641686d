"""The report of the gap study: what differs from the references beyond the noise of seeds."""

import statistics
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from scipy import stats

from fairseq_mhe.common.files import read_json
from fairseq_mhe.report.plots import COLOURS
from fairseq_mhe.report.significance import Noise, adjusted, compare_seeds, noise_of, retained
from fairseq_mhe.runs.recipes import Recipe
from fairseq_mhe.runs.run import Run
from studies.gap_variants import MHA, MHE, QUESTIONS, is_mhe
from studies.study import Report, Study, or_dash
from studies.trainings import Done, by_question, heading, of_unstable

#: The share of false ones among the differences that are called real.
LEVEL = 0.05

_Summaries = Sequence[dict[str, Any]]
_COLUMNS = (
    *("variant", "attention parameters", "BLEU", "sd", "PRR", "PRR 95%"),
    *("to MHE-Mul", "p", "to MHA", "p", "verdict"),
)


def report(study: Study, recipe: Recipe, done: Done, left: Sequence[str]) -> Report:
    """What is known of the variants that are ``done``; ``left``: the names of the others."""
    summaries = summarise(study, done)
    noise = _noise(summaries)
    columns = [*_COLUMNS, *map(str, summaries[0]["seeds"])]
    tables = by_question(QUESTIONS, columns, summaries, _row)
    title, results = heading(f"Why the gap? {recipe.row}", study, recipe, done, left, summaries)
    results["noise"] = None
    notes = [
        f"BLEU `{results['signature']}` on {study.subset}; everything but what a variant names "
        f"is the recipe of {recipe.row} over {recipe.training.updates:,} updates, batches of "
        f"{recipe.training.batch_tokens:,} tokens.",
        "PRR: mean BLEU in percent of MHA's with the row's learning rate; its interval is a "
        "bootstrap of sentences and seeds.",
    ]
    if noise:
        results["noise"] = {
            "deviation": round(noise.deviation, 4),
            "degrees_of_freedom": noise.freedom,
            "unstable": sorted(noise.unstable),
        }
        notes += [*_of_noise(summaries, noise), _of_the_best(summaries, done)]
    else:
        notes.append("One seed: nothing can be said of noise.")
    if left:
        notes.append(f"Not done yet: {', '.join(left)}.")
    draw = partial(_draw, summaries=summaries, noise=noise, title=title)
    return Report("gap", title, results, tables, notes, draw)


def summarise(study: Study, done: Done) -> list[dict[str, Any]]:
    """One object for each variant: scores, and how it differs from both references."""
    (mha,) = (runs for variant, runs in done.items() if variant.name == MHA)
    found = []
    for variant, runs in done.items():
        summary = {
            "variant": variant.name,
            "question": variant.question,
            "attention": variant.attention,
            "options": list(variant.options),
            "changes": dict(variant.changes),
            **read_json(runs[0].counts),
            **study.over_seeds(runs),
            "unstable": False,
            **_retained(study, runs, mha),
        }
        found.append(summary)
    noise = _noise(found)
    if noise:
        for summary in found:
            summary["unstable"] = summary["variant"] in noise.unstable
    for reference in (MHE, MHA):
        _compare(found, reference, noise)
    return found


def _noise(summaries: _Summaries) -> Noise | None:
    return noise_of({summary["variant"]: summary["bleus"] for summary in summaries})


def _compare(summaries: _Summaries, reference: str, noise: Noise | None) -> None:
    """Add to each summary how it differs from the reference, whose own is left as it is."""
    bleus = {summary["variant"]: summary["bleus"] for summary in summaries}
    others = [summary for summary in summaries if summary["variant"] != reference]
    p_values: Sequence[float | None] = [None] * len(others)
    if noise:
        p_values = adjusted([noise.p_value(bleus, s["variant"], reference) for s in others])
    for summary, p_value in zip(others, p_values, strict=True):
        difference = statistics.mean(summary["bleus"]) - statistics.mean(bleus[reference])
        summary[f"against_{reference}"] = {
            "difference": round(difference, 4),
            "p_value": p_value,
            "beyond_noise": p_value is not None and p_value < LEVEL,
        }


def _retained(study: Study, runs: Sequence[Run], mha: Sequence[Run]) -> dict[str, float | None]:
    """PRR with its bootstrap interval over sentences and seeds."""
    ours, theirs = study.cell(runs), study.cell(mha)
    references = ours.lines("references")
    systems = ours.hypotheses(), theirs.hypotheses()
    compared = compare_seeds(*systems, references, ours.tokenisers()[0])
    mean, best = statistics.mean(ours.bleus()), statistics.mean(theirs.bleus())
    interval = {"prr_low": compared.prr_low, "prr_high": compared.prr_high}
    return {"prr": retained(mean, best), **interval}


def _row(summary: Mapping[str, Any]) -> list[str]:
    low, high = summary["prr_low"], summary["prr_high"]
    differences = []
    for reference in (MHE, MHA):
        compared = summary.get(f"against_{reference}")
        if compared is None:
            differences += ["", ""]
        else:
            p_value = or_dash(compared["p_value"], ".3f")
            differences += [f"{compared['difference']:+.2f}", p_value]
    return [
        summary["variant"],
        f"{summary['attention_parameters']:,}",
        f"{summary['bleu']:.2f}",
        or_dash(summary["deviation"], ".2f"),
        or_dash(summary["prr"], ".1f"),
        "-" if low is None else f"{low:.1f} to {high:.1f}",
        *differences,
        _verdict(summary),
        *(f"{value:.2f}" for value in summary["bleus"]),
    ]


def _verdict(summary: Mapping[str, Any]) -> str:
    """Against the default MHE-Mul, in a word."""
    compared = summary.get(f"against_{MHE}")
    if compared is None or compared["p_value"] is None:
        return ""
    word = "within the noise"
    if compared["beyond_noise"]:
        word = "better" if compared["difference"] > 0 else "worse"
    return word + (", unstable" if summary["unstable"] else "")


def _of_noise(summaries: _Summaries, noise: Noise) -> list[str]:
    """What the noise is, and what the columns make of it."""
    count = len(summaries[0]["seeds"])
    least = stats.t.isf(LEVEL / 2, noise.freedom) * noise.deviation * (2 / count) ** 0.5
    notes = [
        f"Noise: the standard deviation between seeds is {noise.deviation:.2f} BLEU, pooled over "
        f"{len(summaries) - len(noise.unstable)} variants ({noise.freedom} degrees of freedom): "
        f"two means of {count} seeds that differ by less than {least:.2f} cannot be told apart, "
        "even alone."
    ]
    notes += of_unstable(noise)
    notes.append(
        "p: t-test with that deviation, adjusted for the number of variants (Benjamini and "
        f"Hochberg). Verdict: better or worse than MHE-Mul where p < {LEVEL:g}; it is about these "
        "sentences, PRR's interval about others too."
    )
    return notes


def _of_the_best(summaries: _Summaries, done: Done) -> str:
    """The best of the variants that could take the place of the default."""
    candidates = [s for s, v in zip(summaries, done, strict=True) if is_mhe(v)]
    best = max(candidates, key=lambda summary: float(summary["bleu"]))
    if best["variant"] == MHE:
        return "No variant with MHE in all places is better than the paper's form."
    difference = best[f"against_{MHE}"]["difference"]
    return (
        f"The best with MHE in all places: {best['variant']}, {difference:+.2f} to the paper's "
        f"form ({_verdict(best) or 'p not known'})."
    )


def _draw(figure: Figure, summaries: _Summaries, noise: Noise | None, title: str) -> None:
    """A line for each variant: its mean and its seeds; bands: what noise does to the references."""
    figure.set_size_inches(9, max(4.0, 0.32 * len(summaries) + 1.5))
    axes = figure.subplots()
    marks = {MHA: ("s", COLOURS[0]), MHE: ("o", COLOURS[1])}
    for place, summary in enumerate(summaries):
        mean, bleus = summary["bleu"], summary["bleus"]
        style, colour = marks.get(summary["variant"], ("D", COLOURS[2]))
        beyond = summary.get(f"against_{MHE}", {}).get("beyond_noise", True)
        fill = "full" if beyond else "none"
        axes.plot(bleus, [place] * len(bleus), ".", color="#7F7F7F", markersize=6)
        axes.plot(mean, place, style, color=colour, markersize=9, fillstyle=fill)
        if summary["variant"] in marks:
            wide = 0.0 if noise is None else noise.deviation / len(bleus) ** 0.5
            axes.axvspan(mean - wide, mean + wide, color=colour, alpha=0.15, linewidth=0)
            axes.axvline(mean, color=colour, linewidth=1, linestyle=":")
    axes.set_yticks(np.arange(len(summaries)), [summary["variant"] for summary in summaries])
    axes.invert_yaxis()
    axes.set_xlabel(
        "BLEU (dots: seeds; hollow: within the noise of MHE-Mul's; bands: a mean ± its error)",
        fontsize=11,
    )
    axes.set_title(title, fontsize=12)
    axes.grid(axis="x", alpha=0.3)
