"""COMET (Rei et al. 2020) beside BLEU, where the user has installed it: it is large and fetches its model itself."""

from __future__ import annotations

import importlib
import importlib.util
from pathlib import Path

import torch

from fairseq_mhe.common.errors import UserError
from fairseq_mhe.common.files import write_json
from fairseq_mhe.runs.run import Run
from fairseq_mhe.runs.scoring import read_lines

#: The model that WMT's participants report.
MODEL = "Unbabel/wmt22-comet-da"
#: In the folder of a data set's translations.
FILE = "comet.json"
SENTENCES_A_BATCH = 16


def check_installed() -> None:
    """See that COMET is there.

    Raises:
        UserError: it is not.
    """
    if importlib.util.find_spec("comet") is None:
        raise UserError("COMET is not installed: pip install unbabel-comet, or leave --comet out")


def add_score(run: Run, subset: str, model: str) -> None:
    """Score a run's translations with a COMET model and write its ``score`` and name to comet.json, once.

    Raises:
        UserError: the model cannot be had.
    """
    folder = run.subset(subset)
    inputs = {
        "translations": run.steps.status()["steps"][f"generate {subset}"]["key"],
        "model": model,
    }
    run.steps.perform(
        f"comet {subset}",
        inputs,
        [folder / FILE],
        lambda: write_json(folder / FILE, {"score": _score(_sides(folder), model), "model": model}),
    )


def _sides(folder: Path) -> list[list[str]]:
    return [read_lines(folder / f"{name}.txt") for name in ("sources", "hypotheses", "references")]


def _score(sides: list[list[str]], model: str) -> float:
    comet = importlib.import_module("comet")
    try:
        loaded = comet.load_from_checkpoint(comet.download_model(model))
    except Exception as error:  # whatever its download or its framework raises
        raise UserError(
            f"COMET cannot load its model {model}: {' '.join(str(error).split())}"
        ) from error
    triples = [
        {"src": source, "mt": hypothesis, "ref": reference}
        for source, hypothesis, reference in zip(*sides, strict=True)
    ]
    found = loaded.predict(
        triples, batch_size=SENTENCES_A_BATCH, gpus=int(torch.cuda.is_available())
    )
    return round(float(found.system_score), 4)
