"""Runs of translation: planned, and once trained averaged, counted, translated, scored."""

import functools
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, replace
from importlib import metadata
from pathlib import Path

from fairseq_mhe.checkpoints.average import average_checkpoints, saved_checkpoints
from fairseq_mhe.checkpoints.checkpoint import open_on_meta
from fairseq_mhe.common.errors import UserError
from fairseq_mhe.common.files import write_json
from fairseq_mhe.common.progress import Board
from fairseq_mhe.common.steps import key
from fairseq_mhe.models.counting import attention_parameters, cache_bytes, total_parameters
from fairseq_mhe.models.options import PLACES
from fairseq_mhe.prepare.data_folder import DataFolder
from fairseq_mhe.runs import comet, generation, scoring
from fairseq_mhe.runs.devices import Device
from fairseq_mhe.runs.job import Job, plan_job, run_name, settings_of
from fairseq_mhe.runs.recipes import Recipe

#: What fairseq calls the checkpoint of an epoch's end.
_EPOCHS = re.compile(r"checkpoint\d+\.pt")


def plan_runs(
    wanted: Recipe, kinds: Iterable[str], seeds: Sequence[int], data: DataFolder, folder: Path
) -> list[Job]:
    """A run below ``folder`` for every kind of attention with every seed, by one recipe.

    Raises:
        UserError: one is there and of other settings.
    """
    runs = []
    for kind in kinds:
        attention = dict.fromkeys(PLACES, kind)
        for seed in seeds:
            settings = settings_of(wanted.row, attention, seed, wanted.training, data.identity)
            name, places = run_name(wanted.row, attention, seed), {"data": str(data.folder)}
            runs.append(plan_job(folder / name, settings, places, wanted.decoding))
    return runs


def make_model(run: Job) -> None:
    """Average a trained run's last checkpoints into its model, and count that.

    Raises:
        UserError: it has no checkpoints any more.
    """
    inputs = {"training": key(run.settings), "last": run.training.average}
    run.steps.perform("average", inputs, [run.model], functools.partial(_average, run))
    count(run, {"model": run.key("average")})


def _average(run: Job) -> None:
    if not run.checkpoints.exists():
        raise UserError(
            f"{run.folder} has no {run.model.name} and no checkpoints to make it of (fairseq-mhe "
            "keep leaves both out): use the folder that was trained, or train in another --out"
        )
    saved = saved_checkpoints(run.checkpoints)
    if run.training.patience:  # the mean is of epochs, and the last update may be within one
        saved = [path for path in saved if _EPOCHS.fullmatch(path.name)] or saved
    average_checkpoints(saved[-run.training.average :], run.model)  # a trial may have fewer


def count(run: Job, inputs: Mapping[str, str]) -> None:
    """Count a run's model, which was made from ``inputs``, into its counts.json.

    ``kv_bytes_per_token``: float32 bytes cached for each target token of each hypothesis while
    decoding; ``kv_bytes_per_source_token``: for each source token of each sentence, whatever the
    beam.
    """

    def action() -> None:
        model = open_on_meta(run.model)
        cache = cache_bytes(model, bytes_per_value=4)
        counts = {
            "attention_parameters": attention_parameters(model),
            "total_parameters": total_parameters(model),
            "kv_bytes_per_token": cache.per_target_token,
            "kv_bytes_per_source_token": cache.per_source_token,
        }
        write_json(run.counts, counts)

    run.steps.perform("count", inputs, [run.counts], action)


def translate(run: Job, data: DataFolder, subset: str, device: Device, board: Board) -> None:
    """Translate a data set with a run's model, alone on the machine, so that speeds compare."""
    decoding = run.decoding
    names = ("hypotheses.txt", "references.txt", "sources.txt", "generation.json")

    def action() -> None:
        for of_others in ("scores.json", comet.FILE):
            (run.subset(subset) / of_others).unlink(missing_ok=True)
        generation.generate(run, data, subset, decoding, device, board)

    run.steps.perform(
        f"generate {subset}",
        {"model": run.key("average"), "decoding": asdict(decoding)},
        [run.subset(subset) / name for name in names],
        action,
    )


def score(run: Job, subset: str, tokenise: str | None = None) -> None:
    """Score a run's translations; ``tokenise`` as in `scoring.score`."""
    folder, language = run.subset(subset), run.settings["data"]["languages"][1]
    tokenise = scoring.bleu_tokeniser(language, tokenise)

    def action() -> None:
        texts = scoring.read_translations(folder)
        found = scoring.score(texts["hypotheses"], texts["references"], language, tokenise)
        if tokens := scoring.read_tokens(folder):
            found = replace(found, given_tokens=scoring.bleu4(*tokens))
        write_json(folder / "scores.json", found.values())

    inputs = {
        "translations": run.key(f"generate {subset}"),
        "sacrebleu": metadata.version("sacrebleu"),
        "tokeniser": tokenise,
    }
    run.steps.perform(f"score {subset}", inputs, [folder / "scores.json"], action)


def scored(run: Job, subset: str, tokenise: str | None = None) -> bool:
    """Whether a run is done to the end for a data set; with ``tokenise``, whether by that."""
    scores, steps = run.subset(subset) / "scores.json", run.steps.status()["steps"]
    if f"score {subset}" not in steps or not scores.is_file():
        return False
    found = scoring.tokeniser_in(scoring.read_scores(scores).bleu.signature) if tokenise else None
    return found == tokenise
