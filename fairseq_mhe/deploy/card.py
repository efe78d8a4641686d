"""The facts about a model, and its card: README.md in the form that the Hugging Face hub reads."""

import json
from collections.abc import Mapping
from pathlib import Path
from string import Template
from typing import Any

from fairseq_mhe.checkpoints.safe_load import provenance, updates_made
from fairseq_mhe.common.errors import one_line
from fairseq_mhe.common.files import read_json
from fairseq_mhe.deploy.trained import Trained
from fairseq_mhe.models.counting import attention_parameters, total_parameters
from fairseq_mhe.runs.scoring import described

_TEMPLATE = Path(__file__).with_name("card.md")
_SUBSET = "test"
_UNKNOWN = "not known"


def facts(trained: Trained, data_name: str | None, licence: str | None) -> dict[str, Any]:
    """What bundle.json says about a model, None for what is not known.

    ``data_name`` and ``licence`` (its SPDX name) are what only a person can say of the data.
    """
    source, run = trained.source, trained.run
    manifest = trained.data.manifest if trained.data else {}
    known: dict[str, Any] = {
        "row": run.row if run else source.row,
        "attention": source.attention_words,
        "parameters": total_parameters(source.model),
        "attention_parameters": attention_parameters(source.model),
        "updates": updates_made(source.state),
        "data": data_name or manifest.get("source", {}).get("corpus"),
        "licence": licence,
        "pairs": manifest.get("lines"),
        "fingerprint": trained.data.fingerprint if trained.data else None,
        "command": provenance(source.state).get("made_by"),
        "training": None,
        "scores": [],
    }
    if run:
        known["command"] = f"train {run.row} {run.kind} --seed {run.seed} --data DATA"
        known["training"] = run.settings["options"]
        scores = run.subset(_SUBSET) / "scores.json"
        known["scores"] = described(read_json(scores)) if scores.is_file() else []
    return known


def card(config: Mapping[str, Any]) -> str:
    """The text of README.md; ``config`` is bundle.json's content."""
    known, text, decoding = config["facts"], config["text"], config["decoding"]
    numbers = {name: f"{value:,}" for name, value in known.items() if isinstance(value, int)}
    pairs = [f"{split} {count:,}" for split, count in (known["pairs"] or {}).items()]
    scores = "\n".join(f"- {_SUBSET}: {line}" for line in known["scores"])
    values = {
        **known,
        **text,
        **decoding,
        **numbers,
        "library": "transformers" if config["format"] == "huggingface" else config["format"],
        "spdx": json.dumps(known["licence"] or "unknown"),
        "text": json.dumps(text),
        "data": _cell(known["data"]),
        "licence": _cell(known["licence"]),
        "pairs": ", ".join(pairs) or _UNKNOWN,
        "fingerprint": _cell(known["fingerprint"]),
        "command": f"`fairseq-mhe {known['command']}`" if known["command"] else _UNKNOWN,
        "training": json.dumps(known["training"]) if known["training"] else _UNKNOWN,
        "scores": f"On {_SUBSET}, detokenised, by fairseq:\n\n{scores}"
        if scores
        else "Not scored.",
    }
    return Template(_TEMPLATE.read_text(encoding="utf-8")).substitute(values)


def _cell(value: str | None) -> str:
    """A value in a table of Markdown."""
    return one_line(value).replace("|", "\\|") if value else _UNKNOWN
