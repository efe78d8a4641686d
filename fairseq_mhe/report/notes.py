"""The notes below a table of translations: what its numbers mean, and how models were trained."""

from collections.abc import Iterable, Sequence
from typing import Any

from fairseq_mhe.common.files import read_json
from fairseq_mhe.models.options import PLACES
from fairseq_mhe.report.results import BASELINE, Cell, baselines, comet_model, label
from fairseq_mhe.report.significance import too_weak
from fairseq_mhe.report.table import Row
from fairseq_mhe.runs.job import Job
from fairseq_mhe.runs.scoring import RESAMPLES, bleu4_line


def of_quickstart(cells: Sequence[Cell], summaries: Sequence[Row]) -> list[str]:
    """Below the quickstart's table."""
    first, several = summaries[0], any(len(summary["seeds"]) > 1 for summary in summaries)
    chance = " of sentences and of seeds; sd: over the seeds" if several else ""
    training, generation = _measured(cells)
    return [
        f"BLEU `{first['signature']}`, chrF `{first['chrf_signature']}`, on "
        f"{first['sentences']:,} detokenised sentences ({cells[0].subset}); ± is half the 95% "
        "bootstrap interval.",
        f"PRR: BLEU in percent of {BASELINE}'s; p: paired bootstrap against {BASELINE}, "
        f"{RESAMPLES:,} resamples{chance}.",
        "Attention parameters: encoder self-, decoder self- and cross-attention. KV bytes/token: "
        "key/value cache in float32 for each generated token of each hypothesis.",
        f"Training tokens/s: target tokens, median over the log, {training}. "
        f"Generation sentences/s: fairseq-generate's own clock, {generation}.",
        f"Seeds: {_seeds(cells)}. {_versions(cells)}.",
    ]


def of_paper(cells: Sequence[Cell], summaries: Sequence[Row]) -> list[str]:
    """Below the paper's table."""
    first = summaries[0]
    seeds = sorted({seed for summary in summaries for seed in summary["seeds"]})
    several = any(len(summary["seeds"]) > 1 for summary in summaries)
    batches = sorted({summary["batch_tokens"] for summary in summaries})
    training, generation = _measured(cells)
    notes = [
        "The paper's numbers (Xue & Aletras 2023) are of WMT14 English-German; its way of scoring "
        "is not published.",
        f"BLEU {first['signature']}, chrF {first['chrf_signature']}, on {first['sentences']:,} "
        f"detokenised sentences ({cells[0].subset}).",
    ]
    if first["tokenised_signature"]:
        notes.append(
            f"Tokenised BLEU: {first['tokenised_signature']} on Moses' tokens with hyphenated "
            "compounds split, as older papers report; no other column compares with it."
        )
    notes += [
        f"PRR: BLEU in percent of {BASELINE}'s; p: sacreBLEU's paired bootstrap against "
        f"{BASELINE}, {RESAMPLES:,} resamples of the sentences"
        f"{' and of the seeds' if several else ''}.",
        "#Params: attention only. KV bytes/token: key/value cache in float32 for each generated "
        "token of a hypothesis.",
        f"Batches of {' or '.join(f'{batch:,}' for batch in batches)} tokens; seeds "
        f"{', '.join(map(str, seeds))}.",
        f"Training: target tokens/s, {training}. Translation: fairseq's clock, {generation}.",
        f"{_versions(cells)}.",
    ]
    if model := comet_model(cells):
        notes.append(f"COMET: {model}, of sources, translations and references.")
    return notes


def _measured(cells: Sequence[Cell]) -> tuple[str, str]:
    """How the speeds of training and of translation were measured."""
    training = {read_json(run.metrics)["measured"] for run in _runs(cells)}
    generation = {each["measured"] for cell in cells for each in cell.values("generation")}
    return "; ".join(sorted(training)), "; ".join(sorted(generation))


def _runs(cells: Sequence[Cell]) -> list[Job]:
    return [run for cell in cells for run in cell.runs]


def _grouped(pairs: Iterable[tuple[str, str]]) -> dict[str, list[str]]:
    """Value -> the names that have it, of pairs of a name and a value."""
    names: dict[str, list[str]] = {}
    for name, value in pairs:
        names.setdefault(value, []).append(name)
    return names


def _seeds(cells: Sequence[Cell]) -> str:
    """The seeds; those of each cell where they differ."""
    seeds = {label(cell, cells): ", ".join(str(run.seed) for run in cell.runs) for cell in cells}
    if len(set(seeds.values())) == 1:
        return next(iter(seeds.values()))
    return "; ".join(f"{name} {of_cell}" for name, of_cell in seeds.items())


def _versions(cells: Sequence[Cell]) -> str:
    """The software, with each version where runs were made with several."""
    versions: dict[str, dict[str, None]] = {}
    for run in _runs(cells):
        for name, version in run.config["versions"].items():
            versions.setdefault(name, {})[version] = None
    return ", ".join(f"{name} {' or '.join(each)}" for name, each in versions.items())


def of_weak(rows: Sequence[Row]) -> list[str]:
    """Why there is a dash in place of PRR and p, where there is one."""
    weak = any(row["weak"] for row in rows)
    return [f"PRR and p are - where {too_weak(BASELINE)}."] if weak else []


def of_training(cells: Sequence[Cell]) -> list[str]:
    """How the models were trained: losses, precision, differences, and what ended by patience."""
    notes = ["Valid loss: the lowest of a training, in bits per target token."]
    runs = _runs(cells)
    precisions = _grouped((run.name, run.training.precision) for run in runs)
    if len(precisions) > 1:
        each = "; ".join(f"{name}: {', '.join(of)}" for name, of in precisions.items())
        notes.append(f"Trained in different precision, so compare with care: {each}.")
    elif "float32" not in precisions:
        notes.append(f"Trained in {''.join(precisions)}.")
    notes += [*_other_training(cells), *_other_data(cells)]
    for run in runs:
        scores = read_json(run.subset(cells[0].subset) / "scores.json")
        if given := scores.get("given_tokens"):
            notes.append(f"{run.name}, on the tokens of the given text: {bleu4_line(given)}.")
    ended = [(run.name, read_json(run.metrics).get("ended_by_patience")) for run in runs]
    early = [f"{name} after {updates:,} updates" for name, updates in ended if updates]
    if early:
        notes.append(f"Ended by patience: {', '.join(early)}.")
    return notes


def _other_training(cells: Sequence[Cell]) -> list[str]:
    """The settings of training that differ between cells of a row, beside its precision.

    Seeds of one cell are alike (`gather`), so that the first one speaks for all.
    """
    notes = []
    for row in dict.fromkeys(cell.row for cell in cells):
        own = [cell for cell in cells if cell.row == row]
        first = baselines(own).get(row, own[0])
        usual = _training(first.runs[0])
        differing = []
        for cell in own:
            of_cell = _training(cell.runs[0])
            names = dict.fromkeys([*usual, *of_cell])
            differ = [name for name in names if of_cell.get(name) != usual.get(name)]
            values = [f"{name} {of_cell.get(name)}" for name in differ]
            if values:
                differing.append(f"{label(cell, cells)} ({', '.join(values)})")
        if differing:
            notes.append(
                f"Trained otherwise than {label(first, cells)}, so compare with care: "
                f"{', '.join(differing)}."
            )
    return notes


def _training(run: Job) -> dict[str, Any]:
    """How a run was trained, but for its attention, seed and precision."""
    start = "a checkpoint" if "start" in run.settings else "scratch"
    own = ("seed", "bf16", "fp16", "attention", *PLACES.values())
    options = {name: value for name, value in run.training.options.items() if name not in own}
    return {**options, "from": start}


def _other_data(cells: Sequence[Cell]) -> list[str]:
    first = cells[0]
    data = first.runs[0].settings["data"]
    others = [label(cell, cells) for cell in cells if cell.runs[0].settings["data"] != data]
    if not others:
        return []
    return [
        f"Trained on other data than {label(first, cells)}, so valid losses do not compare: "
        f"{', '.join(others)}."
    ]
