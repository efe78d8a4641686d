"""A trained model with what belongs to it: its text processing, dictionaries and decoding."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fairseq.data import Dictionary
from fairseq.tasks.translation import TranslationConfig, TranslationTask
from safetensors import SafetensorError, safe_open

from fairseq_mhe.checkpoints.checkpoint import Source, open_source, source_of
from fairseq_mhe.common.errors import UserError
from fairseq_mhe.common.files import read_json
from fairseq_mhe.convert.compare import task_of
from fairseq_mhe.deploy.bundle import Bundle
from fairseq_mhe.models.architectures import MODEL_NAME
from fairseq_mhe.prepare.data_folder import DataFolder, open_data
from fairseq_mhe.prepare.text_processing import TextProcessing
from fairseq_mhe.runs.decoding import Decoding
from fairseq_mhe.runs.job import Job, read_job
from fairseq_mhe.runs.recipes import recipe

#: A fairseq bundle's files; its dictionaries are dict.LANG.txt.
WEIGHTS, OPTIONS = "model.safetensors", "config.json"


@dataclass(frozen=True)
class Trained:
    """A model of ours or of fairseq's own, in float32, ready to be exported or to translate.

    ``folder`` has both dictionaries' files; ``data`` and ``run`` are None where they are unknown.
    """

    source: Source
    text: TextProcessing
    task: TranslationTask
    folder: Path
    decoding: Decoding
    data: DataFolder | None = None
    run: Job | None = None

    @property
    def positions(self) -> tuple[int, int]:
        """The most tokens of a source and of a target, their ends included."""
        model: Any = self.source.model
        source, target = model.max_positions()
        return source, target


def open_trained(path: Path, folder: Path | None = None) -> Trained:
    """The model of a run folder, or of a checkpoint with its data ``folder``; a run knows its own.

    Raises UserError where the checkpoint cannot be read, or the data are missing or others.
    """
    run = read_job(path) if path.is_dir() else None
    source = open_source(path)
    if folder is None and run:
        folder = run.place("data")
    if folder is None:
        raise UserError(f"give the data folder that {path} was trained on (--data)")
    data = open_data(folder)
    if run and data.fingerprint != run.settings["data"]["fingerprint"]:
        raise UserError(
            f"{data.folder} is not the data that {path} was trained on: give --data"
        )
    decoding = run.decoding if run else recipe(source.row).decoding
    task = task_of(data, source)
    return Trained(source, data.processing(), task, data.binary, decoding, data, run)


def read_bundle(bundle: Bundle) -> Trained:
    """The model of a bundle for fairseq; raises UserError where a file is missing or damaged."""
    folder = bundle.folder
    try:
        with safe_open(folder / WEIGHTS, "pt") as stored:
            weights = {name: stored.get_tensor(name) for name in stored.keys()}  # noqa: SIM118
            for name, first in (stored.metadata() or {}).items():
                weights[name] = weights[first]
        files = [folder / f"dict.{language}.txt" for language in bundle.text.languages]
        task = TranslationTask(TranslationConfig(), *map(Dictionary.load, map(str, files)))
    except (OSError, ValueError, KeyError, RuntimeError, SafetensorError) as error:
        raise UserError(f"{folder} cannot be read ({error}): get the bundle again") from None
    options = {**read_json(folder / OPTIONS), "_name": MODEL_NAME}
    state = {"args": None, "cfg": {"model": options}, "model": weights}
    source = source_of(folder / WEIGHTS, state)
    return Trained(source, bundle.text, task, folder, bundle.decoding)
