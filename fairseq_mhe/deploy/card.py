"""The model card: README.md of a bundle, in the form that the Hugging Face hub reads."""

import json
from collections.abc import Mapping
from typing import Any

from fairseq_mhe.common.errors import one_line
from fairseq_mhe.prepare.text_processing import TextProcessing

_BUNDLE_FILES = (
    "`bundle.json` says what is done to text and how the model was decoded, `SHA256SUMS` holds the "
    "checksum of each file (`sha256sum -c SHA256SUMS`). There is no pickle in it."
)
_LIMITS = (
    "Trained on the data named above only: text of other kinds is translated badly.",
    "One sentence a line: longer text was not seen in training.",
    "The translations were scored automatically (see the signature), not by people.",
)


def card(
    format: str,
    config: Mapping[str, Any],
    text: TextProcessing,
    example: str,
    needs: tuple[str, ...],
    notes: tuple[str, ...] = (),
) -> str:
    """The text of README.md.

    ``config``: bundle.json's content; ``needs``: what pip installs for the ``example``; ``notes``:
    sentences about the ``format``.
    """
    facts = config["facts"]
    source, target = text.languages
    kinds = ", ".join(sorted(set(facts["attention"].values())))
    title = f"{source}-{target}, Transformer {facts['row']} with {kinds} attention"
    sections = [
        _header(format, config, text, title),
        f"# {title}\n",
        f"Translates {source} into {target}. {_BUNDLE_FILES}\n",
        f"## Use\n\n    pip install {' '.join(map(repr, needs))}\n    python example.py\n",
        f"```python\n{example}```\n",
        "".join(f"{note}\n" for note in notes),
        f"## What is done to text\n\n{_steps(text)}",
        f"## Model\n\n{_table(_model_rows(facts))}",
        f"## Data and training\n\n{_table(_training_rows(facts))}",
        _training_block(facts),
        f"## Scores\n\n{_scores(facts, config['decoding'])}",
        "## Limits\n\n" + "".join(f"- {limit}\n" for limit in _LIMITS),
    ]
    return "\n".join(section for section in sections if section)


def _header(format: str, config: Mapping[str, Any], text: TextProcessing, title: str) -> str:
    """The metadata; JSON values are YAML."""
    facts = config["facts"]
    library = {"huggingface": "transformers", "fairseq": "fairseq"}.get(format, format)
    data = facts["data"]["name"] or "unnamed"
    head: dict[str, Any] = {
        "language": list(text.languages),
        "license": facts["data"]["licence"] or "unknown",
        "library_name": library,
        "pipeline_tag": "translation",
        "tags": ["translation", "fairseq-mhe", *sorted(set(facts["attention"].values()))],
        "metrics": ["bleu", "chrf"],
    }
    if facts["scores"]:
        metrics = [
            {"type": name, "value": facts["scores"][name]["score"], "name": label}
            for name, label in (("bleu", "BLEU (sacreBLEU)"), ("chrf", "chrF (sacreBLEU)"))
        ]
        result = {
            "task": {"type": "translation"},
            "dataset": {"name": data, "type": "text", "split": facts["scores"]["subset"]},
            "metrics": metrics,
        }
        head["model-index"] = [{"name": title, "results": [result]}]
    lines = [f"{name}: {json.dumps(value, ensure_ascii=False)}" for name, value in head.items()]
    return "\n".join(["---", *lines, "---\n"])


def _steps(text: TextProcessing) -> str:
    """In words, what a program has to do."""
    source, target = text.languages
    steps = [
        "Unicode's composed form (NFC), without control characters, single spaces between words"
    ]
    if text.punctuation:
        steps.append(f"punctuation as Moses' normalize-punctuation writes it ({source})")
    if text.tokenised:
        escapes = "with XML escapes" if text.escaped else "without XML escapes"
        steps.append(
            f"Moses' tokeniser for {source} (sacremoses), {escapes}, without hyphen splitting"
        )
    if text.lowercase:
        steps.append("small letters")
    if text.model.kind == "bpe":
        steps.append("byte-pair encoding by subword-nmt with `bpe.codes`")
        back = "`@@ ` is removed"
    else:
        steps.append("SentencePiece with `sentencepiece.model`")
        back = "spaces are removed, and U+2581 becomes a space"
    steps.append("translation of the subwords, up to the end of the sentence")
    if text.escaped:
        back += ", XML escapes become characters"
    if text.tokenised:
        back += f", and Moses' detokeniser for {target} joins punctuation to words"
    return "".join(f"{n}. {step}\n" for n, step in enumerate([*steps, f"back: {back}"], 1))


def _model_rows(facts: Mapping[str, Any]) -> list[tuple[str, str]]:
    kinds = facts["attention"]
    return [
        ("architecture", f"encoder-decoder Transformer, row `{facts['row']}` of fairseq-mhe"),
        ("attention", ", ".join(f"{place}: `{kind}`" for place, kind in kinds.items())),
        ("parameters", f"{facts['parameters']:,}"),
        ("of them attention", f"{facts['attention_parameters']:,}"),
        (
            "key/value cache in fairseq-mhe (float32)",
            f"{facts['cache_bytes_per_target_token']:,} bytes a target token and hypothesis, "
            f"{facts['cache_bytes_per_source_token']:,} a source token",
        ),
    ]


def _training_rows(facts: Mapping[str, Any]) -> list[tuple[str, str]]:
    data = facts["data"]
    lines = data.get("lines") or {}
    rows = [
        ("data", data["name"] or "not named by who exported the model"),
        ("licence of the data", data["licence"] or "not named by who exported the model"),
        ("pairs", ", ".join(f"{split} {count:,}" for split, count in lines.items()) or "not known"),
        ("updates", f"{facts['updates']:,}"),
    ]
    if data.get("fingerprint"):
        rows.append(("fingerprint of the data folder", f"`{data['fingerprint']}`"))
    if facts["made_by"]:
        rows.append(("made by", f"`fairseq-mhe {facts['made_by']}`"))
    return rows


def _training_block(facts: Mapping[str, Any]) -> str:
    if not facts["training"]:
        return ""
    settings = json.dumps(facts["training"])
    versions = ", ".join(f"{name} {version}" for name, version in facts["versions"].items())
    return (
        f"A run of these settings is made by `{facts['command']}` with options for what differs "
        f"from the row's recipe:\n\n```json\n{settings}\n```\n\nExported with {versions}.\n"
    )


def _scores(facts: Mapping[str, Any], decoding: Mapping[str, Any]) -> str:
    found = facts["scores"]
    how = f"beam {decoding['beam']}, length penalty {decoding['lenpen']:g}"
    if not found:
        return f"Not scored. Decoded by default with {how}.\n"
    lines = []
    for name, label in (("bleu", "BLEU"), ("chrf", "chrF")):
        score = found[name]
        shown = f"{score['score']:.2f} ± {score['confidence']:.2f}"
        lines.append(f"- {label} {shown} (`{score['signature']}`)\n")
    told = f"{found['subset']}, {found['sentences']:,} detokenised sentences, {how}, by fairseq."
    return f"{''.join(lines)}\n{told}\n"


def _table(rows: list[tuple[str, str]]) -> str:
    cells = [(name, one_line(value).replace("|", "\\|")) for name, value in rows]
    return "| | |\n|---|---|\n" + "".join(f"| {name} | {value} |\n" for name, value in cells)
