"""What stands below a table: what its numbers mean, and how the runs were trained."""

from collections.abc import Sequence
from typing import Any

from fairseq_mhe.common.files import read_json
from fairseq_mhe.report.results import BASELINE, Cell, baselines, comet_model, label
from fairseq_mhe.runs.precision import FLOAT32, told
from fairseq_mhe.runs.run import Run
from fairseq_mhe.runs.scoring import RESAMPLES, read_scores

Summary = dict[str, Any]


def quickstart_notes(cells: Sequence[Cell], summaries: Sequence[Summary]) -> list[str]:
    """Below the quickstart's table."""
    first, several = summaries[0], any(len(s["seeds"]) > 1 for s in summaries)
    seeds = " of sentences and of seeds; sd: over the seeds" if several else ""
    trained, generated = _measured(cells)
    return [
        f"BLEU `{first['signature']}`, chrF `{first['chrf_signature']}`, on "
        f"{first['sentences']:,} detokenised sentences ({cells[0].subset}); ± is half the 95% "
        "bootstrap interval.",
        f"PRR: BLEU in percent of {BASELINE}'s; p: paired bootstrap against {BASELINE}, "
        f"{RESAMPLES:,} resamples{seeds}.",
        "Attention parameters: encoder self-, decoder self- and cross-attention. KV bytes/token: "
        "key/value cache in float32 for each generated token of each hypothesis.",
        f"Training tokens/s: target tokens, median over the log, {trained}. "
        f"Generation sentences/s: fairseq-generate's own clock, {generated}.",
        f"Seeds: {_seeds(cells)}. {_versions(cells)}.",
    ]


def paper_notes(cells: Sequence[Cell], summaries: Sequence[Summary]) -> list[str]:
    """Below the paper's table."""
    first = summaries[0]
    seeds = sorted({seed for summary in summaries for seed in summary["seeds"]})
    several = " and of the seeds" if any(len(s["seeds"]) > 1 for s in summaries) else ""
    batches = [f"{batch:,}" for batch in sorted({s["batch_tokens"] for s in summaries})]
    trained, generated = _measured(cells)
    notes = [
        "The paper's numbers (Xue & Aletras 2023) are of WMT14 English-German; its way of scoring "
        "is not published.",
        f"BLEU {first['signature']}, chrF {first['chrf_signature']}, on {first['sentences']:,} "
        f"detokenised sentences ({cells[0].subset}).",
        f"PRR: BLEU in percent of {BASELINE}'s; p: sacreBLEU's paired bootstrap against "
        f"{BASELINE}, {RESAMPLES:,} resamples of the sentences{several}.",
        "#Params: attention only. KV bytes/token: key/value cache in float32 for each generated "
        "token of a hypothesis.",
        f"Batches of {' or '.join(batches)} tokens; seeds {', '.join(map(str, seeds))}.",
        f"Training: target tokens/s, {trained}. Translation: fairseq's clock, {generated}.",
        f"{_versions(cells)}.",
    ]
    if first["tokenised_signature"]:
        told = (
            f"Tokenised BLEU: {first['tokenised_signature']} on Moses' tokens with hyphenated "
            "compounds split, as older papers report; no other column compares with it."
        )
        notes.insert(2, told)
    if model := comet_model(cells):
        notes.append(f"COMET: {model}, of sources, translations and references.")
    return notes


def _measured(cells: Sequence[Cell]) -> tuple[str, str]:
    """How the speeds of training and of translation were measured, each way of them."""
    trained = {read_json(run.metrics)["measured"] for cell in cells for run in cell.runs}
    generated = {v["measured"] for cell in cells for v in cell.values("generation")}
    return "; ".join(sorted(trained)), "; ".join(sorted(generated))


def _seeds(cells: Sequence[Cell]) -> str:
    """The seeds, of each cell where they are not the same."""
    found = {label(c, cells): ", ".join(str(run.seed) for run in c.runs) for c in cells}
    if len(set(found.values())) == 1:
        return next(iter(found.values()))
    return "; ".join(f"{name} {seeds}" for name, seeds in found.items())


def _versions(cells: Sequence[Cell]) -> str:
    """The software, with each version where runs were made with several."""
    found: dict[str, dict[str, None]] = {}
    for cell in cells:
        for run in cell.runs:
            for name, version in run.config["versions"].items():
                found.setdefault(name, {})[version] = None
    return ", ".join(f"{name} {' or '.join(versions)}" for name, versions in found.items())


def training_notes(cells: Sequence[Cell]) -> list[str]:
    """What runs say of their training: losses, precision, BLEU4, which of them patience ended."""
    runs = [run for cell in cells for run in cell.runs]
    precision = told(runs)
    notes = ["Valid loss: the lowest of a training, in bits per target token."]
    if len({run.training.precision for run in runs}) > 1:
        notes.append(f"Trained in different precision, so compare with care: {precision}.")
    elif precision != FLOAT32:
        notes.append(f"Trained in {precision}.")
    notes += _differences(cells)
    for run in runs:
        if given := read_scores(run.subset(cells[0].subset) / "scores.json").given_tokens:
            notes.append(f"{run.name}, on the tokens of the given text: {given}.")
    ended = [(run.name, read_json(run.metrics).get("ended_by_patience")) for run in runs]
    early = [f"{name} after {updates:,} updates" for name, updates in ended if updates]
    if early:
        notes.append(f"Ended by patience: {', '.join(early)}.")
    return notes


def _differences(cells: Sequence[Cell]) -> list[str]:
    """What beside columns and the precision differs between cells of a row, or of any, the data.

    Seeds of one cell are alike (`gather`), so that the first one speaks for all.
    """
    notes = []
    for row in dict.fromkeys(cell.row for cell in cells):
        own = [cell for cell in cells if cell.row == row]
        first = baselines(own).get(row, own[0])
        usual = _training(first.runs[0])
        differing = []
        for cell in own:
            of_run = _training(cell.runs[0])
            values = [f"{n} {value}" for n, value in of_run.items() if value != usual[n]]
            if values:
                differing.append(f"{label(cell, cells)} ({', '.join(values)})")
        if differing:
            name = label(first, cells)
            told = f"Trained otherwise than {name}, so compare with care: {', '.join(differing)}."
            notes.append(told)
    return notes + _other_data(cells)


def _training(run: Run) -> dict[str, Any]:
    """How a run was trained, but for its precision, which has a note."""
    start = "a checkpoint" if "start" in run.settings else "scratch"
    found = {**vars(run.training), "from": start}
    return {name: value for name, value in found.items() if name != "precision"}


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
