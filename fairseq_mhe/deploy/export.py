"""``fairseq-mhe export``: write a trained model as a bundle, one folder that needs nothing else."""

import json
import shlex
import shutil
from argparse import ArgumentParser, Namespace
from dataclasses import asdict
from pathlib import Path
from string import Template

from fairseq_mhe.checkpoints.checkpoint import provenance, updates_made
from fairseq_mhe.common.arguments import as_words
from fairseq_mhe.common.errors import UserError
from fairseq_mhe.common.files import new_folder, write_json, write_text
from fairseq_mhe.common.progress import say
from fairseq_mhe.common.quiet import quiet_fairseq
from fairseq_mhe.common.tables import listed
from fairseq_mhe.deploy import huggingface_format
from fairseq_mhe.deploy.bundle import CONFIG, VERSION, write_sums
from fairseq_mhe.deploy.trained import (
    Trained,
    open_trained,
    write_ctranslate2,
    write_fairseq,
)
from fairseq_mhe.models.counting import attention_parameters, total_parameters
from fairseq_mhe.prepare.languages import base_code
from fairseq_mhe.prepare.text_processing import TextProcessing
from fairseq_mhe.runs.processes import user_dir
from fairseq_mhe.runs.scoring import described, read_scores

_HERE = Path(__file__).parent
#: Format -> function that writes the files of this format to a new folder.
FORMATS = {
    "fairseq": write_fairseq,
    "ctranslate2": write_ctranslate2,
    "huggingface": huggingface_format.write,
}
#: Licences, by SPDX names, of corpora that this package contains.
_LICENCES = {"home-assistant": "apache-2.0"}
#: More lines of the card's last section, by format.
_LIMITS = {
    "ctranslate2": "- CTranslate2 cannot pad targets in this model's layout, which stores one key "
    "and value head once: give `score_batch` the option `max_batch_size=1`.\n"
}


def export(
    trained: Trained, format: str, folder: Path, data_name: str = "", licence: str = ""
) -> None:
    """Write a bundle, the new ``folder``; raises UserError if ``format`` cannot hold the model."""
    text = trained.text
    config = {
        "version": VERSION,
        "format": format,
        "text": text.stored,
        "moses": list(map(base_code, text.languages)),  # for sacremoses in example.py
        "decoding": asdict(trained.decoding),
        "positions": trained.positions,
    }
    FORMATS[format](trained, folder)
    shutil.copyfile(text.model.path, folder / text.model.path.name)
    packages = {"fairseq_mhe", user_dir().name}  # a user's own kinds have a package
    imports = "\n".join(f"import {package}" for package in sorted(packages))
    example = (_HERE / "examples" / f"{format}.py").read_text("utf-8")
    example = example.replace("import fairseq_mhe", imports)
    example = example.replace("PACKAGES", packages_for(format, text))
    write_text(folder / "example.py", example)
    write_text(folder / "README.md", card(trained, format, data_name, licence))
    files = [*folder.iterdir(), folder / CONFIG]
    config["files"] = len(files)  # so that a cut SHA256SUMS is noticed
    write_json(folder / CONFIG, config)
    write_sums(folder)


def packages_for(format: str, text: TextProcessing) -> str:
    """Return what ``pip install`` needs for example.py of a bundle with such a text."""
    if format == "fairseq":
        copy = "PATH/TO/fairseq-mhe"
        return f"'{copy}[fairseq]'  # {copy}: a copy of its source"
    packages = ["transformers", "torch"]
    if format == "ctranslate2":
        learner = "subword-nmt" if text.subword == "bpe" else "sentencepiece"
        packages = ["ctranslate2", learner]
    if text.tokenizer != "none" or text.punctuation:
        packages.append("sacremoses")
    return " ".join(packages)


def card(trained: Trained, format: str, data_name: str, licence: str) -> str:
    """Return the text of the model card, with "not known" for missing facts."""
    source, run, decoding = trained.source, trained.run, trained.decoding
    row, differences = source.family.nearest_row(source.options)
    corpus = trained.data.manifest.get("source", {}).get("corpus")
    licence = licence or ("" if data_name else _LICENCES.get(corpus, ""))
    limits = _LIMITS.get(format, "")
    made_by = provenance(source.state).get("made_by")
    scores: list[str] = []
    if run:  # --updates or a recipe may have changed the row's options
        options = shlex.join(as_words(run.settings["options"]))
        made_by = f"`fairseq-train DATA/bin --user-dir {user_dir().name} {options}`"
        scores = _scores(run.folder / "test")
    facts = {
        **trained.text.stored,  # the card names source_lang and target_lang
        "packages": packages_for(format, trained.text),
        "library": "transformers" if format == "huggingface" else format,
        "text": json.dumps(trained.text.stored),
        "sizes": listed({f"`{row}`": "of fairseq-mhe", **differences}),
        "attention": source.attention_summary,
        "parameters": f"{total_parameters(source.model):,}",
        "attention_parameters": f"{attention_parameters(source.model):,}",
        "data": data_name or corpus,
        "spdx": json.dumps(licence or "unknown"),
        "licence": licence,
        "pairs": listed(trained.data.manifest.get("lines", {})),
        "fingerprint": trained.data.fingerprint,
        "updates": updates_made(source.state),
        "made_by": made_by,
        "scores": "\n".join(scores) or "Not scored.",
        "decoding": f"beam {decoding.beam}, length penalty {decoding.lenpen}",
    }
    known = {name: value or "not known" for name, value in facts.items()}
    return Template((_HERE / "card.md").read_text("utf-8")).substitute(known) + limits


def _scores(folder: Path) -> list[str]:
    """Return the card's lines about the scores of the test set, if there are any."""
    if not (folder / "scores.json").is_file():
        return []
    try:
        return [f"- test: {line}" for line in described(read_scores(folder))]
    except UserError as error:  # an older version made them, or the texts have changed
        say(f"the model card leaves the scores out: {error}")
        return []


def add_arguments(parser: ArgumentParser) -> None:
    add = parser.add_argument
    add("model", type=Path, metavar="RUN", help="run folder, or checkpoint (with --data)")
    add("output", type=Path, metavar="OUT", help="new folder for the bundle")
    help_ = "program that reads the weights (default: %(default)s)"
    add("--format", choices=FORMATS, default="fairseq", help=help_)
    help_ = "data folder that the model was trained on (default: the run's)"
    add("--data", type=Path, metavar="DATA", help=help_)
    help_ = "name of the data, for the model card"
    add("--data-name", default="", metavar="TEXT", help=help_)
    help_ = "licence of the data by its SPDX name (apache-2.0), for the model card"
    add("--data-licence", default="", metavar="NAME", help=help_)


def run(args: Namespace) -> None:
    """Export the model, and print the bundle's format and kind of attention."""
    with quiet_fairseq(), new_folder(args.output) as folder:
        trained = open_trained(args.model, args.data)
        export(trained, args.format, folder, args.data_name, args.data_licence)
    print(f"{args.output}: bundle ({args.format}), {trained.source.attention_summary}")
