"""COMET (Rei et al. 2020) beside BLEU, where the user has installed it: it fetches its model."""

import importlib
import importlib.util
from pathlib import Path

from fairseq_mhe.common.errors import UserError
from fairseq_mhe.common.files import write_json
from fairseq_mhe.runs.job import Job
from fairseq_mhe.runs.scoring import read_translations

#: The model that WMT's participants report.
MODEL = "Unbabel/wmt22-comet-da"
#: In the folder of a data set's translations.
FILE = "comet.json"


def check_installed() -> None:
    """See that COMET is there.

    Raises:
        UserError: it is missing.
    """
    if importlib.util.find_spec("comet") is None:
        raise UserError("COMET is not installed: pip install unbabel-comet, or leave --comet out")


def add_score(run: Job, subset: str, model: str, gpu: bool) -> None:
    """Score a run's translations with a COMET model; its ``score`` and name go to comet.json, once.

    Raises:
        UserError: the model cannot be had.
    """
    folder = run.subset(subset)

    def action() -> None:
        write_json(folder / FILE, {"score": _score(folder, model, gpu), "model": model})

    inputs = {"translations": run.key(f"generate {subset}"), "model": model}
    run.steps.perform(f"comet {subset}", inputs, [folder / FILE], action)


def _score(folder: Path, model: str, gpu: bool) -> float:
    comet = importlib.import_module("comet")
    try:
        loaded = comet.load_from_checkpoint(comet.download_model(model))
    except Exception as error:  # whatever its download or its framework raises
        raise UserError(f"COMET cannot load its model {model}: {error}") from error
    found = read_translations(folder)
    texts = {"src": found["sources"], "mt": found["hypotheses"], "ref": found["references"]}
    triples = [dict(zip(texts, lines, strict=True)) for lines in zip(*texts.values(), strict=True)]
    return round(float(loaded.predict(triples, batch_size=16, gpus=int(gpu)).system_score), 4)
