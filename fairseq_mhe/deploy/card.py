"""A bundle's README.md: the facts about its model, in the form that the Hugging Face hub reads."""

import json
from pathlib import Path
from string import Template

from fairseq_mhe.checkpoints.checkpoint import provenance, updates_made
from fairseq_mhe.common.files import read_json
from fairseq_mhe.deploy.trained import Trained
from fairseq_mhe.models.counting import attention_parameters, total_parameters
from fairseq_mhe.runs.scoring import described

_TEMPLATE = Path(__file__).with_name("card.md")
_SUBSET = "test"


def card(trained: Trained, format: str, data_name: str | None, licence: str | None) -> str:
    """The card's text; the name of the data and its licence (of SPDX) are what a person says."""
    source, run = trained.source, trained.run
    manifest = trained.data.manifest if trained.data else {}
    command, training, scores = provenance(source.state).get("made_by"), None, []
    if run:
        command = f"train {run.row} {run.kind} --seed {run.seed} --data DATA"
        training = json.dumps(run.settings["options"])
        if (path := run.subset(_SUBSET) / "scores.json").is_file():
            scores = [f"- {_SUBSET}: {line}" for line in described(read_json(path))]
    pairs = [f"{split} {count:,}" for split, count in manifest.get("lines", {}).items()]
    values = {
        "library": "transformers" if format == "huggingface" else format,
        "source_lang": trained.text.languages[0],
        "target_lang": trained.text.languages[1],
        "text": json.dumps(trained.text.settings),
        "row": run.row if run else source.row,
        "attention": source.attention_words,
        "parameters": f"{total_parameters(source.model):,}",
        "attention_parameters": f"{attention_parameters(source.model):,}",
        "data": data_name or manifest.get("source", {}).get("corpus"),
        "spdx": json.dumps(licence or "unknown"),
        "licence": licence,
        "pairs": ", ".join(pairs),
        "fingerprint": trained.data and trained.data.fingerprint,
        "updates": updates_made(source.state),
        "command": command and f"`fairseq-mhe {command}`",
        "training": training,
        "scores": "\n".join(scores) or "Not scored.",
        "beam": trained.decoding.beam,
        "lenpen": trained.decoding.lenpen,
    }
    known = {
        name: "not known" if value in (None, "") else value for name, value in values.items()
    }
    return Template(_TEMPLATE.read_text(encoding="utf-8")).substitute(known)
