"""Run folders made by hand, so that what reads them is tested without training."""

from __future__ import annotations

import fcntl
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from fairseq_mhe.experiments.recipes import Training
from fairseq_mhe.experiments.runs import PLACES, Run, open_run, run_name
from fairseq_mhe.experiments.scoring import score
from fairseq_mhe.files import write_json, write_text
from fairseq_mhe.prepare.home_assistant import prepare_home_assistant

REFERENCES = [f"Die Lampe Nummer {i} im Flur ist seit {i} Stunden an." for i in range(21)]
SHORT = {"updates": 40, "max_tokens": 512, "lr": 0.001, "warmup_updates": 4, "dropout": 0.1}
TRAINING = Training(**SHORT, label_smoothing=0.1, weight_decay=0.0, checkpoints=4, average=2)


def settings(kind: str = "mha", seed: int = 1, **changes: Any) -> dict[str, Any]:
    """A run's settings."""
    return {
        "row": "tiny",
        "attention": dict.fromkeys(PLACES, kind),
        "seed": seed,
        "training": {**vars(TRAINING), **changes},
        "data": {"languages": ["en", "de"], "fingerprint": "0" * 64},
    }


@pytest.fixture(scope="session")
def miniature(tmp_path_factory: pytest.TempPathFactory, worker_id: str) -> Path:
    """A data folder of 300 pairs of the embedded corpus; the test processes share one."""
    base = tmp_path_factory.getbasetemp()
    folder = base if worker_id == "master" else base.parent
    with (folder / "miniature.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        return prepare_home_assistant(folder / "miniature data", limit=300, vocab_size=500, workers=1)


@pytest.fixture
def make_run(tmp_path: Path) -> Callable[..., Run]:
    """Makes a run folder; ``wrong`` of its translations are other sentences; None: it is not finished."""

    def make(kind: str, wrong: int | None, seed: int = 1, row: str = "tiny") -> Run:
        folder = tmp_path / run_name(row, dict.fromkeys(PLACES, kind), seed)
        run = open_run(folder, {**settings(kind, seed), "row": row}, {"data": "d"})
        size = {"mha": 4000, "mhe_mul": 1500}.get(kind, 2000)
        write_json(run.counts, {"attention_parameters": size, "total_parameters": 9999, "kv_bytes_per_token": 64})
        curve = [[10, 9.0 + seed], [20, 7.5], [40, 6.25]]
        write_json(
            run.metrics, {"train": curve, "valid": curve, "tokens_per_second": 1000.0 * seed, "measured": "alone"}
        )
        if wrong is None:
            return run
        folder = run.subset("test")
        hypotheses = [f"Etwas anderes {i}." if i < wrong else line for i, line in enumerate(REFERENCES)]
        for name, lines in (("hypotheses", hypotheses), ("references", REFERENCES), ("sources", REFERENCES)):
            write_text(folder / f"{name}.txt", "".join(f"{line}\n" for line in lines))
        write_json(folder / "generation.json", {"sentences": 21, "sentences_per_second": 5.5, "measured": "alone"})
        bleu, chrf = (vars(s) for s in (score(hypotheses, REFERENCES).bleu, score(hypotheses, REFERENCES).chrf))
        write_json(folder / "scores.json", {"bleu": bleu, "chrf": chrf, "sentences": 21})
        return run

    return make
