"""The notes below a table of translations: what its numbers mean, and how models were trained."""

from collections.abc import Sequence
from typing import Any

from fairseq_mhe.common.files import read_json
from fairseq_mhe.report.results import BASELINE, Cell, differences, label, training_of
from fairseq_mhe.report.significance import too_weak
from fairseq_mhe.report.table import Row
from fairseq_mhe.runs.job import Job
from fairseq_mhe.runs.scoring import RESAMPLES, bleu4_line


def notes_below(cells: Sequence[Cell], summaries: Sequence[Row], paper: bool) -> list[str]:
    """All notes; ``paper``: those on the paper's numbers too."""
    first = summaries[0]
    several = any(len(summary["seeds"]) > 1 for summary in summaries)
    runs = [run for cell in cells for run in cell.runs]
    training = _each([read_json(run.metrics)["measured"] for run in runs])
    generation = _each(
        [each["measured"] for cell in cells for each in cell.values("generation")]
    )
    notes = [
        f"BLEU `{first['signature']}`, chrF `{first['chrf_signature']}`, on "
        f"{first['sentences']:,} detokenised sentences ({cells[0].subset}); ± is half the 95% "
        "bootstrap interval.",
        f"PRR: BLEU in percent of {BASELINE}'s; p: paired bootstrap against {BASELINE}, "
        f"{RESAMPLES:,} resamples{' of sentences and of seeds; sd: over the seeds' * several}.",
        "Attention parameters: encoder self-, decoder self- and cross-attention. KV bytes/token: "
        "key/value cache in float32 for each generated token of each hypothesis.",
        f"Training tokens/s: target tokens, median over the log, {training}. "
        f"Generation sentences/s: fairseq-generate's own clock, {generation}.",
        f"Seeds: {_seeds(cells)}. {_versions(runs)}.",
        "Valid loss: the lowest of a training, in bits per target token.",
    ]
    if paper:
        notes += _of_paper(cells, summaries)
    if any(row["attention"] == BASELINE and row["prr"] is None for row in summaries):
        notes.append(f"PRR and p are - where {too_weak(BASELINE)}.")
    if models := [score["model"] for cell in cells for score in cell.values("comet")]:
        notes.append(f"COMET: {models[0]}, of sources, translations and references.")
    return [*notes, *_training(cells, runs)]


def _of_paper(cells: Sequence[Cell], summaries: Sequence[Row]) -> list[str]:
    batches = sorted({summary["batch_tokens"] for summary in summaries})
    notes = [
        "The paper's numbers (Xue & Aletras 2023) are of WMT14 English-German; its way of scoring "
        "is not published.",
        f"Batches of {' or '.join(f'{batch:,}' for batch in batches)} tokens.",
    ]
    if signature := summaries[0]["tokenised_signature"]:
        notes.append(
            f"Tokenised BLEU: {signature} on Moses' tokens with hyphenated compounds split, as "
            "older papers report; no other column compares with it."
        )
    return notes


def _each(words: Sequence[str], between: str = "; ") -> str:
    return between.join(sorted(set(words)))


def _seeds(cells: Sequence[Cell]) -> str:
    """The seeds; those of each cell where they differ."""
    seeds = {
        label(cell, cells): ", ".join(str(run.seed) for run in cell.runs) for cell in cells
    }
    if len(set(seeds.values())) == 1:
        return next(iter(seeds.values()))
    return "; ".join(f"{name} {of_cell}" for name, of_cell in seeds.items())


def _versions(runs: Sequence[Job]) -> str:
    """The software, with each version where runs have several."""
    versions: dict[str, list[str]] = {}
    for run in runs:
        for name, version in run.config["versions"].items():
            versions.setdefault(name, []).append(version)
    return ", ".join(f"{name} {_each(each, ' or ')}" for name, each in versions.items())


def _training(cells: Sequence[Cell], runs: Sequence[Job]) -> list[str]:
    """How the models were trained, and what hinders comparing them."""
    notes = []
    precisions = {run.training.precision for run in runs}
    if precisions != {"float32"} and len(precisions) == 1:
        notes.append(f"Trained in {precisions.pop()}.")
    for row in dict.fromkeys(cell.row for cell in cells):
        notes += _other_training([cell for cell in cells if cell.row == row], cells)
    for run in runs:
        scores = read_json(run.subset(cells[0].subset) / "scores.json")
        if given := scores.get("given_tokens"):
            notes.append(f"{run.name}, on the tokens of the given text: {bleu4_line(given)}.")
    ended = {run.name: read_json(run.metrics).get("ended_by_patience") for run in runs}
    early = [f"{name} after {updates:,} updates" for name, updates in ended.items() if updates]
    if early:
        notes.append(f"Ended by patience: {', '.join(early)}.")
    return notes


def _other_training(of_row: Sequence[Cell], cells: Sequence[Cell]) -> list[str]:
    """The cells of a row that were trained otherwise than its baseline (seeds of one are alike)."""
    first = next((cell for cell in of_row if cell.kind == BASELINE), of_row[0])
    others = []
    for cell in of_row:
        values: dict[str, Any] = training_of(cell.runs[0])
        differing = differences(first.runs[0], cell.runs[0])
        if differing:
            each = ", ".join(f"{name} {values.get(name)}" for name in differing)
            others.append(f"{label(cell, cells)} ({each})")
    if not others:
        return []
    return [
        f"Trained otherwise than {label(first, cells)}, so compare with care: {', '.join(others)}."
    ]
