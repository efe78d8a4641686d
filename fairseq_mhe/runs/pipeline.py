"""From prepared data to scored runs: train, average, count, generate, score; what is done already is not done again."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from functools import partial
from importlib import metadata
from pathlib import Path

from fairseq_mhe.checkpoints.average import average_checkpoints, saved_checkpoints
from fairseq_mhe.common.files import write_json
from fairseq_mhe.common.progress import Board
from fairseq_mhe.common.steps import key
from fairseq_mhe.prepare.data_folder import Dataset
from fairseq_mhe.runs import generation, scoring, training
from fairseq_mhe.runs.counting import count
from fairseq_mhe.runs.devices import Device
from fairseq_mhe.runs.recipes import Recipe
from fairseq_mhe.runs.run import PLACES, Run, open_run, run_name, settings_of


@dataclass(frozen=True)
class Plan:
    """Which models: every kind of attention with every seed, by one recipe on one data set."""

    recipe: Recipe
    kinds: Sequence[str]
    seeds: Sequence[int]
    subset: str


def open_runs(plan: Plan, data: Dataset, folder: Path) -> list[Run]:
    """The plan's run folders, each under ``folder``, made or gone on with.

    Raises:
        UserError: one is there and of other settings.
    """
    return [
        _open(plan.recipe, kind, seed, data, folder) for kind in plan.kinds for seed in plan.seeds
    ]


def _open(recipe: Recipe, kind: str, seed: int, data: Dataset, folder: Path) -> Run:
    attention = dict.fromkeys(PLACES, kind)
    settings = settings_of(recipe.row, attention, seed, recipe.training.settings(), data.identity)
    return open_run(
        folder / run_name(recipe.row, attention, seed), settings, {"data": str(data.folder)}
    )


def train(
    runs: Sequence[Run], data: Dataset, device: Device, board: Board, tensorboard: bool = False
) -> None:
    """Train the runs, and average and count each model."""
    training.train(runs, data, device, board, tensorboard)
    for run in runs:
        _average(run)
        inputs = {"model": _made_from(run, "average")}
        run.steps.perform("count", inputs, [run.counts], partial(count, run.model, run.counts))


def _average(run: Run) -> None:
    number = training.training_of(run).average

    def action() -> None:
        average_checkpoints(
            saved_checkpoints(run.checkpoints)[-number:], run.model
        )  # a trial may have fewer

    run.steps.perform(
        "average", {"training": key(run.settings), "last": number}, [run.model], action
    )


def generate(plan: Plan, runs: Sequence[Run], data: Dataset, device: Device, board: Board) -> None:
    """Translate the plan's data set with every model, one after the other, so that their speeds compare."""
    decoding = plan.recipe.decoding
    for run in runs:
        inputs = {"model": _made_from(run, "average"), "decoding": asdict(decoding)}
        outputs = [
            run.subset(plan.subset) / name
            for name in ("hypotheses.txt", "references.txt", "sources.txt")
        ]
        run.steps.perform(
            f"generate {plan.subset}",
            inputs,
            [*outputs, run.subset(plan.subset) / "generation.json"],
            partial(generation.generate, run, data, plan.subset, decoding, device, board),
        )


def score(plan: Plan, runs: Sequence[Run]) -> None:
    """Score every run's translations."""
    for run in runs:
        folder = run.subset(plan.subset)
        inputs = {
            "translations": _made_from(run, f"generate {plan.subset}"),
            "sacrebleu": metadata.version("sacrebleu"),
        }
        language = run.settings["data"]["languages"][1]
        run.steps.perform(
            f"score {plan.subset}",
            inputs,
            [folder / "scores.json"],
            partial(_score, folder, language),
        )


def _score(folder: Path, language: str) -> None:
    hypotheses, references = (
        scoring.read_lines(folder / f"{name}.txt") for name in ("hypotheses", "references")
    )
    write_json(folder / "scores.json", asdict(scoring.score(hypotheses, references, language)))


def scored(run: Run, subset: str) -> bool:
    """Whether a run is done to the end for a data set."""
    return (
        f"score {subset}" in run.steps.status()["steps"]
        and (run.subset(subset) / "scores.json").is_file()
    )


def _made_from(run: Run, step: str) -> str:
    """What a finished step's result was made from, for the steps after it."""
    return run.steps.status()["steps"][step]["key"]
