"""Run folders made by hand, so that what reads them is tested without training; a miniature WMT14 for what trains."""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from fairseq_mhe.experiments.recipes import Training
from fairseq_mhe.experiments.runs import PLACES, Run, open_run, run_name
from fairseq_mhe.experiments.scoring import score
from fairseq_mhe.files import write_json, write_text
from tests.miniature import make_miniature, serve

REFERENCES = [f"Die Lampe Nummer {i} im Flur ist seit {i} Stunden an." for i in range(21)]
REPOSITORY = Path(__file__).resolve().parents[2]
#: Sentences of valid and of test.
HELD_OUT = 30
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


@contextlib.contextmanager
def shared(factory: pytest.TempPathFactory, worker_id: str, name: str) -> Iterator[Path]:
    """The folder that all test processes share, for one of them at a time that makes or wants ``name``."""
    base = factory.getbasetemp()
    folder = base if worker_id == "master" else base.parent
    with (folder / f"{name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield folder


@pytest.fixture(scope="session")
def miniature(tmp_path_factory: pytest.TempPathFactory, worker_id: str) -> Path:
    """The data folder that data-prep/wmt14_en_de.sh makes of a miniature WMT14 from a server on 127.0.0.1."""
    with shared(tmp_path_factory, worker_id, "miniature") as folder:
        data, done = folder / "miniature data", folder / "miniature.done"
        if not done.exists():
            mini = make_miniature(folder / "a miniature", pairs=100, held_out=HELD_OUT)
            script = REPOSITORY / "data-prep" / "wmt14_en_de.sh"
            with serve(mini.archives) as server:
                words = ["--out", str(data), *mini.options(server.url), "--vocab-size", "500", "--workers", "1"]
                subprocess.run(["bash", script, *words], env={**os.environ, "PYTHON": sys.executable}, check=True)
            done.touch()
    return data


@pytest.fixture(scope="session")
def environment(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What scripts/*.sh take as --venv: for them this package is installed there, and it runs with this Python."""
    folder = tmp_path_factory.mktemp("an environment")
    (folder / "bin").mkdir()
    command = folder / "bin" / "fairseq-mhe"
    command.write_text(f'#!/usr/bin/env bash\nexec "{sys.executable}" -m fairseq_mhe.cli "$@"\n')
    command.chmod(0o755)
    described = b"".join((REPOSITORY / name).read_bytes() for name in ("setup.py", "constraints.txt"))
    stamp = f"{REPOSITORY} {hashlib.sha256(described).hexdigest()}  -\n"
    for extras in ("fairseq", "fairseq,slurm", "fairseq,convert"):
        (folder / f".fairseq-mhe-installed-{extras}").write_text(stamp)
    return folder


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
