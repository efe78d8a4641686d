"""What bundle.json and the model card tell about a model: sizes, data, training, scores."""

from dataclasses import dataclass
from typing import Any

from fairseq_mhe.checkpoints.safe_load import provenance, updates_made
from fairseq_mhe.common.system import installed
from fairseq_mhe.deploy.trained import Trained
from fairseq_mhe.models.counting import attention_parameters, cache_bytes, total_parameters
from fairseq_mhe.models.rows import nearest_row
from fairseq_mhe.prepare.data_folder import DataFolder
from fairseq_mhe.runs.run import kind_name
from fairseq_mhe.runs.scoring import read_scores

_PACKAGES = ("fairseq-mhe", "torch", "ve-fairseq", "fairseq", "ctranslate2", "safetensors")
#: sha256 of the source's training text -> the embedded corpus.
_HOME_ASSISTANT = "afdf8d54796024dbfce94d7cdf8d34863fd603f861034b4fb18f9123d4bd70f1"
_SUBSET = "test"


@dataclass(frozen=True)
class Told:
    """What only a person can say of the data: its name, and the SPDX name of its licence."""

    data: str | None = None
    licence: str | None = None


def facts(trained: Trained, told: Told) -> dict[str, Any]:
    """The facts, as JSON has them; what is not known is None."""
    model, source = trained.source.model, trained.source
    cache = cache_bytes(model)
    found: dict[str, Any] = {
        "row": trained.run.row if trained.run else nearest_row(source.options).name,
        "attention": source.attention,
        "parameters": total_parameters(model),
        "attention_parameters": attention_parameters(model),
        "cache_bytes_per_target_token": cache.per_target_token,
        "cache_bytes_per_source_token": cache.per_source_token,
        "updates": updates_made(source.state),
        "made_by": provenance(source.state).get("made_by"),
        "data": _data(trained.data, told),
        "scores": None,
        "command": None,
        "training": None,
        "versions": installed(_PACKAGES),
    }
    run = trained.run
    if run is not None:
        kind = kind_name(run.settings["attention"])
        found["command"] = f"fairseq-mhe train {run.row} {kind} --seed {run.seed} --data DATA"
        found["training"] = run.settings["training"]
        scores = run.subset(_SUBSET) / "scores.json"
        if scores.is_file():
            read = read_scores(scores)
            found["scores"] = {
                "subset": _SUBSET,
                "sentences": read.sentences,
                "bleu": vars(read.bleu),
                "chrf": vars(read.chrf),
            }
    return found


def _data(data: DataFolder | None, told: Told) -> dict[str, Any]:
    found: dict[str, Any] = {"name": told.data, "licence": told.licence}
    if data is None:
        return found
    manifest = data.manifest
    inputs = manifest["steps"].get("clean", {}).get("made_from", {}).get("inputs", {})
    if any(_HOME_ASSISTANT in corpus for corpus in inputs.get("train", ())):
        known = {"name": "Home Assistant's interface (embedded corpus)", "licence": "apache-2.0"}
        found = {name: value or known[name] for name, value in found.items()}
    found["name"] = found["name"] or (manifest.get("source") or {}).get("corpus")
    return {**found, "lines": manifest.get("lines"), "fingerprint": data.fingerprint}
