"""The facts about a model, and its card: README.md in the form that the Hugging Face hub reads."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from string import Template
from typing import Any

from fairseq_mhe.checkpoints.safe_load import provenance, updates_made
from fairseq_mhe.common.errors import one_line
from fairseq_mhe.common.files import read_json
from fairseq_mhe.common.system import installed
from fairseq_mhe.deploy.trained import Trained
from fairseq_mhe.models.counting import attention_parameters, cache_bytes, total_parameters
from fairseq_mhe.models.rows import nearest_row
from fairseq_mhe.prepare.data_folder import DataFolder
from fairseq_mhe.runs.job import Job, kind_name

_TEMPLATE = Path(__file__).with_name("card.md")
_PACKAGES = ("fairseq-mhe", "torch", "ve-fairseq", "fairseq", "ctranslate2", "safetensors")
#: sha256 of the source's training text of the embedded corpus.
_HOME_ASSISTANT = "afdf8d54796024dbfce94d7cdf8d34863fd603f861034b4fb18f9123d4bd70f1"
_SUBSET = "test"
_UNKNOWN = "not known"


@dataclass(frozen=True)
class Data:
    """What only a person can say of the data: its name, and the SPDX name of its licence."""

    name: str | None = None
    licence: str | None = None


def facts(trained: Trained, data: Data) -> dict[str, Any]:
    """What bundle.json says about a model, None for what is not known."""
    model, source, run = trained.source.model, trained.source, trained.run
    cache = cache_bytes(model)
    return {
        "row": run.row if run else nearest_row(source.options).name,
        "attention": source.attention,
        "parameters": total_parameters(model),
        "attention_parameters": attention_parameters(model),
        "cache_bytes_per_target_token": cache.per_target_token,
        "cache_bytes_per_source_token": cache.per_source_token,
        "updates": updates_made(source.state),
        "data": _data(trained.data, data),
        "versions": installed(_PACKAGES),
        "command": provenance(source.state).get("made_by"),
        "training": None,
        "scores": None,
        **(_run_facts(run) if run else {}),
    }


def _run_facts(run: Job) -> dict[str, Any]:
    """The command and settings of a run, and its scores if it has any."""
    kind = kind_name(run.settings["attention"])
    known: dict[str, Any] = {
        "command": f"train {run.row} {kind} --seed {run.seed} --data DATA",
        "training": run.settings["options"],
    }
    path = run.subset(_SUBSET) / "scores.json"
    if path.is_file():
        scores = read_json(path)
        known["scores"] = {
            "subset": _SUBSET,
            **{name: scores[name] for name in ("sentences", "bleu", "chrf")},
        }
    return known


def _data(folder: DataFolder | None, data: Data) -> dict[str, Any]:
    known: dict[str, Any] = {"name": data.name, "licence": data.licence}
    if folder is None:
        return known
    manifest = folder.manifest
    inputs = manifest["steps"].get("clean", {}).get("made_from", {}).get("inputs", {})
    if any(_HOME_ASSISTANT in corpus for corpus in inputs.get("train", ())):
        known["name"] = data.name or "Home Assistant's interface (embedded corpus)"
        known["licence"] = data.licence or "apache-2.0"
    known["name"] = known["name"] or (manifest.get("source") or {}).get("corpus")
    return {**known, "lines": manifest.get("lines"), "fingerprint": folder.fingerprint}


def card(config: Mapping[str, Any], needs: str, note: str) -> str:
    """The text of README.md.

    ``config``: bundle.json's content; ``needs``: what pip installs for the example; ``note``: a
    sentence about the format.
    """
    known, data = config["facts"], config["facts"]["data"]
    source, target = config["text"]["source_lang"], config["text"]["target_lang"]
    kinds = sorted(set(known["attention"].values()))
    title = f"{source}-{target}, Transformer {known['row']} with {', '.join(kinds)} attention"
    pairs = [f"{split} {count:,}" for split, count in (data.get("lines") or {}).items()]
    values = {
        "metadata": _metadata(config, kinds, title),
        "title": title,
        "source": source,
        "target": target,
        "needs": needs,
        "note": note,
        "text": json.dumps(config["text"]),
        "row": known["row"],
        "attention": ", ".join(f"{place}: `{kind}`" for place, kind in known["attention"].items()),
        "parameters": f"{known['parameters']:,}",
        "attention_parameters": f"{known['attention_parameters']:,}",
        "cache_target": f"{known['cache_bytes_per_target_token']:,}",
        "cache_source": f"{known['cache_bytes_per_source_token']:,}",
        "data": _cell(data["name"]),
        "licence": _cell(data["licence"]),
        "pairs": ", ".join(pairs) or _UNKNOWN,
        "fingerprint": _cell(data.get("fingerprint")),
        "updates": f"{known['updates']:,}",
        "command": f"`fairseq-mhe {known['command']}`" if known["command"] else _UNKNOWN,
        "training": f"Settings of the training: `{json.dumps(known['training'])}`",
        "scores": _scores(known["scores"]),
        "beam": config["decoding"]["beam"],
        "lenpen": f"{config['decoding']['lenpen']:g}",
    }
    return Template(_TEMPLATE.read_text(encoding="utf-8")).substitute(values)


def _cell(value: str | None) -> str:
    """A value in a table of Markdown."""
    return one_line(value).replace("|", "\\|") if value else _UNKNOWN


def _metadata(config: Mapping[str, Any], kinds: list[str], title: str) -> str:
    """The hub's metadata as YAML, whose values are JSON."""
    known = config["facts"]
    library = {"huggingface": "transformers"}.get(config["format"], config["format"])
    values: dict[str, Any] = {
        "language": [config["text"]["source_lang"], config["text"]["target_lang"]],
        "license": known["data"]["licence"] or "unknown",
        "library_name": library,
        "pipeline_tag": "translation",
        "tags": ["translation", "fairseq-mhe", *kinds],
        "metrics": ["bleu", "chrf"],
    }
    if scores := known["scores"]:
        dataset = {"name": known["data"]["name"] or "unnamed", "type": "text"}
        metrics = [{"type": name, "value": scores[name]["score"]} for name in ("bleu", "chrf")]
        result = {
            "task": {"type": "translation"},
            "dataset": {**dataset, "split": scores["subset"]},
            "metrics": metrics,
        }
        values["model-index"] = [{"name": title, "results": [result]}]
    return "\n".join(
        f"{name}: {json.dumps(value, ensure_ascii=False)}" for name, value in values.items()
    )


def _scores(scores: Mapping[str, Any] | None) -> str:
    if not scores:
        return "Not scored."
    lines = [
        f"On {scores['sentences']:,} detokenised sentences of {scores['subset']}, by fairseq:\n"
    ]
    for name, label in (("bleu", "BLEU"), ("chrf", "chrF")):
        score = scores[name]
        value = f"{score['score']:.2f} ± {score['confidence']:.2f}"
        lines.append(f"- {label} {value} (`{score['signature']}`)")
    return "\n".join(lines)
