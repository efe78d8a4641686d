"""A data folder as all that trains, translates, converts or measures sees it."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fairseq.data import Dictionary
from fairseq.tasks.translation import TranslationConfig, TranslationTask

from fairseq_mhe.common.errors import UserError
from fairseq_mhe.common.files import no_colon
from fairseq_mhe.common.steps import key
from fairseq_mhe.prepare.manifest import MANIFEST, check_complete, read_manifest
from fairseq_mhe.prepare.text_processing import TextProcessing, plain_text, processing_of
from fairseq_mhe.prepare.tokenise import ESCAPED

#: What a manifest says in "form" of running text; of parallel text it says nothing.
TEXT = "text"
#: The word under which fairseq's task of a masked language model hides others.
MASK = "<mask>"


@dataclass(frozen=True)
class DataFolder:
    """What fairseq-mhe prepare has made; or, without a manifest, fairseq-preprocess alone.

    ``languages``: source and target. Identity, text and detokenise are of a folder with a manifest.
    """

    folder: Path
    languages: tuple[str, str]
    manifest: Mapping[str, Any] = field(default_factory=dict)

    @property
    def binary(self) -> Path:
        """What fairseq's commands read."""
        return self.folder / "bin" if self.manifest else self.folder

    @property
    def fingerprint(self) -> str:
        """A hash of the content of every file that was made: the same on every machine."""
        files: dict[str, str] = {}
        for step in self.manifest["steps"].values():
            files |= {name: entry["sha256"] for name, entry in step["files"].items()}
        return key(files)

    @property
    def identity(self) -> dict[str, Any]:
        """What a run's settings say of its data."""
        return {"languages": list(self.languages), "fingerprint": self.fingerprint}

    def dictionary(self, side: int) -> Path:
        """The dictionary of the source (0) or the target (1)."""
        return self.binary / f"dict.{self.languages[side]}.txt"

    def text(self, subset: str, side: int) -> Path:
        """The detokenised text of a split; ``side`` 0 is the source, 1 the target."""
        return self.folder / "raw" / f"{subset}.{self.languages[side]}"

    def detokenise(self, lines: Iterable[str], side: int = 1) -> list[str]:
        """Subwords, as hypotheses have them, as plain text, which is what is scored."""
        manifest, language = self.manifest, self.languages[side]
        return plain_text(lines, manifest["subword"], manifest["tokenizer"], language)

    def given_tokens(self, lines: Iterable[str]) -> list[str] | None:
        """Subwords as the tokens of a text that was given tokenised, on which others score.

        None where the tokens are ours: nobody else's scores are of them.
        """
        if self.manifest.get("tokenizer") != ESCAPED:
            return None
        return plain_text(lines, self.manifest["subword"], "none", self.languages[1])

    def segmented(self, subset: str, side: int) -> Path:
        """A split in subwords; sides as those of `text`."""
        return self.folder / "subword" / f"{subset}.{self.languages[side]}"

    def processing(self) -> TextProcessing:
        """What the text went through, for text that is new.

        Raises:
            UserError: the folder was not made by fairseq-mhe prepare, or its subword model is
                missing.
        """
        if not self.manifest:
            raise UserError(
                f"{self.folder} has no manifest that says how its text was made: "
                "give a folder of fairseq-mhe prepare"
            )
        settings = {**self.manifest["options"], **self.manifest}
        try:
            return processing_of(settings, self.folder / "subword")
        except UserError as error:
            raise UserError(
                f"{error}: prepare {self.folder} again, which makes what is missing"
            ) from None


@dataclass(frozen=True)
class TextFolder(DataFolder):
    """What data-prep/text.sh and its like have made: running text for language models."""

    def dictionary(self, side: int = 0) -> Path:
        """The one dictionary."""
        return self.binary / "dict.txt"


def model_dictionary(path: Path, masked: bool) -> Dictionary:
    """A dictionary with what the task of a masked language model adds to it: <mask>."""
    dictionary = Dictionary.load(str(path))
    if masked:
        dictionary.add_symbol(MASK)
    return dictionary


def load_task(data: DataFolder) -> TranslationTask:
    """fairseq's task with the dictionaries of a data folder.

    Raises:
        UserError: a dictionary cannot be read.
    """
    config = TranslationConfig(
        data=str(data.binary),
        source_lang=data.languages[0],
        target_lang=data.languages[1],
        # References to other parts of a whole configuration by default.
        dataset_impl=None,
        required_seq_len_multiple=1,
        train_subset="train",
    )
    try:
        return TranslationTask.setup_task(config)
    except (OSError, ValueError, IndexError) as error:
        raise UserError(f"the dictionaries in {data.binary} cannot be read: {error}") from None


def open_prepared(folder: Path) -> DataFolder:
    """A folder that fairseq-mhe prepare has finished.

    Raises:
        UserError: it has no manifest or an unfinished one, or fairseq cannot read such a path.
    """
    folder = folder.resolve()
    no_colon(folder)
    manifest = read_manifest(folder)
    check_complete(folder, manifest)
    return _checked(folder, _languages_of(folder, manifest), manifest)


def open_data(folder: Path) -> DataFolder:
    """A folder of fairseq-mhe prepare, or of fairseq-preprocess itself.

    Raises:
        UserError: it is neither, or a dictionary is missing.
    """
    if (folder / MANIFEST).exists():
        manifest = read_manifest(folder)
        return _checked(folder, _languages_of(folder, manifest), manifest)
    return _checked(folder, _languages_in(folder), {})


def _checked(folder: Path, languages: tuple[str, str], manifest: Mapping[str, Any]) -> DataFolder:
    data = DataFolder(folder, languages, manifest)
    for side in (0, 1):
        if not data.dictionary(side).is_file():
            raise UserError(
                f"{data.dictionary(side)} is missing: prepare {folder} again, "
                "which makes what is missing"
            )
    return data


def open_text(folder: Path) -> TextFolder:
    """A folder of running text that data-prep/text.sh or its like has finished.

    Raises:
        UserError: it has no manifest or an unfinished one, is of parallel text, or fairseq cannot
            read such a path.
    """
    folder = folder.resolve()
    no_colon(folder)
    manifest = read_manifest(folder)
    if manifest.get("form") != TEXT:
        raise UserError(f"{folder} is no running text: give a folder of data-prep/text.sh")
    check_complete(folder, manifest)
    data = TextFolder(folder, _languages_said(folder, manifest), manifest)
    if not data.dictionary(0).is_file():
        raise UserError(f"{data.dictionary(0)} is missing: prepare {folder} again")
    return data


def _languages_of(folder: Path, manifest: Mapping[str, Any]) -> tuple[str, str]:
    if manifest.get("form") == TEXT:
        raise UserError(
            f"{folder} is running text, for language models: give a folder of parallel text"
        )
    return _languages_said(folder, manifest)


def _languages_said(folder: Path, manifest: Mapping[str, Any]) -> tuple[str, str]:
    try:
        return manifest["source_lang"], manifest["target_lang"]
    except KeyError as error:
        raise UserError(
            f"{folder / MANIFEST} has no {error}: give a folder that fairseq-mhe prepare has made"
        ) from None


def _languages_in(folder: Path) -> tuple[str, str]:
    """Those in the names of fairseq-preprocess's files, as in train.en-de.en.idx."""
    for path in sorted(folder.glob("*.*-*.*")):
        languages = path.name.split(".")[1].split("-")
        if len(languages) == 2:
            return languages[0], languages[1]
    raise UserError(
        f"{folder} is no data folder: give one that fairseq-mhe prepare or fairseq-preprocess "
        "has made"
    )
