"""Engines on a quickstart of 200 pairs: what should have the same BLEU has it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from fairseq_mhe.models.packed import int8_available
from tests.fixtures.trained import run_folder
from tests.studies.checks import reports, twice


def test_engines(source: Path, tmp_path: Path, workers_here: None) -> None:
    out = tmp_path / "engines"
    mhe = run_folder(source.parent, "mhe_mul")
    twice(
        [
            "compare-engines",
            "--mha",
            str(source),
            "--mhe",
            str(mhe),
            "--repetitions",
            "1",
            "--threads",
            "1",
        ],
        out,
    )
    engines = reports(out, "engines")["engines"]
    assert {name: result["status"] for name, result in engines.items()} == dict.fromkeys(
        engines, "ok"
    )
    assert len(engines) == (11 if int8_available() else 9)
    assert engines["stock"]["relative"]["median"] == 1
    bleu = {name: result["bleu"]["score"] for name, result in engines.items()}
    assert bleu["stock"] == pytest.approx(bleu["fairseq_mhe mha float32"], abs=0.01)
    sizes = [
        engines[f"CTranslate2 mhe_mul{name}"]["file_bytes"]
        for name in (" float32", " shared heads float32", " int8")
    ]
    assert sizes[0] > sizes[1] > sizes[2]
    scores = json.loads((source / "test" / "scores.json").read_text())
    assert bleu["fairseq_mhe mha float32"] == pytest.approx(scores["bleu"]["score"], abs=0.01)
