"""A data folder as all that trains, translates, converts or measures sees it."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fairseq_mhe.common.errors import UserError
from fairseq_mhe.common.files import no_colon
from fairseq_mhe.prepare.manifest import MANIFEST, PARALLEL, file_hashes, read_manifest
from fairseq_mhe.prepare.subword import join
from fairseq_mhe.prepare.text_processing import TextProcessing
from fairseq_mhe.prepare.tokenise import ESCAPED

if TYPE_CHECKING:  # fairseq takes seconds to import
    from fairseq.tasks.translation import TranslationTask


@dataclass(frozen=True)
class DataFolder:
    """A folder of fairseq-mhe prepare, or without a manifest the binary form alone.

    ``languages``: source and target, sides 0 and 1.
    """

    folder: Path
    languages: tuple[str, str]
    manifest: Mapping[str, Any] = field(default_factory=dict)

    @property
    def binary(self) -> Path:
        """The folder that fairseq's commands read."""
        return self.folder / "bin" if self.manifest else self.folder

    @property
    def fingerprint(self) -> str:
        """A hash of the content of all prepared files: the same on every machine."""
        hashes = json.dumps(file_hashes(self.manifest), sort_keys=True)
        return hashlib.sha256(hashes.encode()).hexdigest()

    @property
    def identity(self) -> dict[str, Any]:
        """The data in a run's settings."""
        return {"languages": list(self.languages), "fingerprint": self.fingerprint}

    def text(self, subset: str, side: int) -> Path:
        """The detokenised text of a split."""
        return self.folder / "raw" / f"{subset}.{self.languages[side]}"

    def segmented(self, subset: str, side: int) -> Path:
        """A split in subwords."""
        return self.folder / "subword" / f"{subset}.{self.languages[side]}"

    def processing(self) -> TextProcessing:
        """How the folder's text was processed, for new text and for hypotheses."""
        settings = {**self.manifest["options"], **self.manifest}
        return TextProcessing(settings, self.folder / "subword")

    def given_tokens(self, lines: Iterable[str]) -> list[str]:
        """Moses' tokens of lines in subwords if the text came tokenised, for BLEU4; else none."""
        if self.manifest.get("tokenizer") != ESCAPED:
            return []
        kind = self.manifest["subword"]
        return [join(line, kind) for line in lines]


def open_data(folder: Path, form: str = PARALLEL) -> DataFolder:
    """A finished folder of a form: ``PARALLEL`` text, running ``TEXT`` or a ``TASK``.

    Raises UserError where there is no such folder, or fairseq cannot read its path.
    """
    place = folder.resolve()
    no_colon(place)
    if place.name == "bin" and (place.parent / MANIFEST).is_file():
        raise UserError(
            f"{folder} is fairseq's part of a data folder: give the folder above"
        )
    manifest = read_manifest(place, form)
    if manifest["state"] != "complete":
        advice = "run the same preparation again, which resumes"
        raise UserError(f"{folder} is not finished: {advice}")
    languages = manifest.get("source_lang", ""), manifest.get("target_lang", "")
    return DataFolder(place, languages, manifest)


def open_binary(folder: Path) -> DataFolder:
    """A finished folder of parallel text, or of fairseq-preprocess; UserError if it is neither."""
    if (folder / MANIFEST).exists():
        return open_data(folder)
    example = next(folder.glob("*.*-*.*.idx"), None)  # train.en-de.en.idx
    if example is None:
        kinds = "fairseq-mhe prepare or fairseq-preprocess"
        raise UserError(f"{folder} is no data folder: give one of {kinds}")
    source, _, target = example.name.split(".")[1].partition("-")
    return DataFolder(folder, (source, target))


def load_task(data: DataFolder) -> TranslationTask:
    """fairseq's task with the dictionaries of a data folder."""
    from fairseq.tasks.translation import TranslationConfig, TranslationTask

    source, target = data.languages
    # By default these refer to other parts of a whole configuration.
    rest: Any = {
        "dataset_impl": None,
        "required_seq_len_multiple": 1,
        "train_subset": "train",
    }
    place = str(data.binary)
    config = TranslationConfig(data=place, source_lang=source, target_lang=target, **rest)
    return TranslationTask.setup_task(config)
