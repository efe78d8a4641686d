"""Open a data folder for reading, to train, translate, convert or measure."""

from __future__ import annotations

import hashlib
import json
import struct
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from fairseq_mhe.common.errors import UserError
from fairseq_mhe.common.files import check_no_colon
from fairseq_mhe.prepare.manifest import (
    MANIFEST,
    PARALLEL,
    damaged_files,
    file_hashes,
    read_manifest,
    recorded_files,
)
from fairseq_mhe.prepare.steps import POSITIONS
from fairseq_mhe.prepare.text_processing import TextProcessing

if TYPE_CHECKING:  # fairseq takes seconds to import
    from fairseq.tasks.translation import TranslationTask


@dataclass(frozen=True)
class DataFolder:
    """A folder of `fairseq-mhe prepare`, or of fairseq-preprocess, which has no manifest."""

    folder: Path
    languages: tuple[str, str]  # source (side 0) and target (side 1)
    manifest: Mapping[str, Any] = field(default_factory=dict)

    @property
    def binary(self) -> Path:
        """The folder that fairseq's commands read."""
        return self.folder / "bin" if self.manifest else self.folder

    @property
    def fingerprint(self) -> str:
        """The SHA-256 over all prepared files: equal data have the same on every machine."""
        hashes = json.dumps(file_hashes(self.manifest), sort_keys=True)
        return hashlib.sha256(hashes.encode()).hexdigest()

    @property
    def identity(self) -> dict[str, Any]:
        """What the settings of a run record about its data."""
        return {"languages": list(self.languages), "fingerprint": self.fingerprint}

    def text(self, subset: str, side: int, form: str = "raw") -> Path:
        """Return the path of a split as plain text, or in subwords with form "subword"."""
        return self.folder / form / f"{subset}.{self.languages[side]}"

    def longest(self, subset: str) -> tuple[int, int]:
        """Return the most tokens, </s> included, of a source and of a target of a split."""
        from fairseq.data.data_utils import load_indexed_dataset

        source, target = self.languages
        longest = []
        for language in (source, target):
            path = self.binary / f"{subset}.{source}-{target}.{language}"
            dataset = load_indexed_dataset(str(path))  # its sizes live as long as this
            longest.append(int(dataset.sizes.max()))
        return longest[0], longest[1]

    def raised_limits(
        self, options: Mapping[str, Any], subsets: Iterable[str] = ("valid", "test")
    ) -> dict[str, int]:
        """Return fairseq's limits of lengths that a line of ``subsets`` exceeds, raised to it.

        Valid and test keep every line, but fairseq refuses lines above its limits. ``options``:
        fairseq's options by name, with the limits so far.
        """
        sources, targets = zip(*map(self.longest, subsets), strict=True)
        source, target = max(sources), max(targets)
        needed = {"max_source_positions": source, "max_target_positions": target}
        raised = {}
        for name, length in needed.items():
            if length > int(options.get(name) or POSITIONS):
                raised[name] = length
        batch = options.get("max_tokens")
        if batch and max(source, target) > int(batch):
            raised["max_tokens"] = max(source, target)
        return raised

    @property
    def processing(self) -> TextProcessing:
        """How the text of the folder is processed; KeyError without a manifest."""
        return TextProcessing.read(self.manifest["text_spec"], self.folder / "subword")


def open_data(folder: Path, form: str = PARALLEL) -> DataFolder:
    """Open a complete folder of a form: ``PARALLEL`` text, running ``TEXT`` or a ``TASK``.

    Raises UserError if it is missing, unfinished or of another form, if a file is not as its
    manifest records it, or if the path has a colon.
    """
    path = folder.resolve()
    check_no_colon(path)
    if path.name == "bin" and (path.parent / MANIFEST).is_file():
        raise UserError(f"{folder} is fairseq's part of a data folder: give its parent")
    manifest = read_manifest(path, form)
    if manifest["state"] != "complete":
        advice = "run the same preparation again, which resumes"
        raise UserError(f"{folder} is not finished: {advice}")
    for name, problem in damaged_files(path, recorded_files(manifest)).items():
        advice = "give the command that prepared the folder again, which mends it"
        raise UserError(f"{folder / name} {problem}: {advice}")
    text = manifest.get("text_spec")  # a task has none
    languages = (text["source_lang"], text["target_lang"]) if text else ("", "")
    return DataFolder(path, languages, manifest)


def open_binary(folder: Path) -> DataFolder:
    """Open a complete folder of parallel text, or of fairseq-preprocess; UserError if neither."""
    if (folder / MANIFEST).exists():
        return open_data(folder)
    example = next(folder.glob("*.*-*.*.idx"), None)  # train.en-de.en.idx
    if example is None:
        makers = "fairseq-mhe prepare or fairseq-preprocess"
        raise UserError(f"{folder} is no data folder: give one of {makers}")
    for index in folder.glob("*.idx"):
        _check_whole(index)
    source, _, target = example.name.split(".")[1].partition("-")
    return DataFolder(folder, (source, target))


def _check_whole(index: Path) -> None:
    """Raise UserError if an index of fairseq-preprocess or its .bin is cut: there are no checksums.

    Its format: 9 bytes of name, the version (8), the type of a token (1), the number of lines (8),
    each line's number of tokens (4), each line's first byte in the .bin (8).
    """
    from fairseq.data.indexed_dataset import MMapIndexedDataset, _code_to_dtype

    data = index.with_suffix(".bin")
    magic = MMapIndexedDataset.Index._HDR_MAGIC
    try:
        content: Any = np.memmap(index, np.uint8, "r")
        if len(content) > len(magic) and content[: len(magic)].tobytes() != magic:
            return  # fairseq-preprocess has other formats, too
        code, lines = struct.unpack_from("<BQ", content, 17)
        tokens = np.frombuffer(content, "<i4", lines, 26)
        begins = np.frombuffer(content, "<i8", lines, 26 + 4 * lines)
        expected = begins[-1] + tokens[-1] * np.dtype(_code_to_dtype[code]).itemsize
        is_whole = len(content) == 26 + 12 * lines
        is_whole = is_whole and data.is_file() and data.stat().st_size == expected
    except (struct.error, ValueError, IndexError):
        is_whole = False
    if not is_whole:
        raise UserError(f"{index} or {data.name} is cut: run fairseq-preprocess again")


def load_task(data: DataFolder) -> TranslationTask:
    """Return fairseq's translation task with the dictionaries of a data folder."""
    from fairseq.tasks.translation import TranslationConfig, TranslationTask

    source, target = data.languages
    config = TranslationConfig(source_lang=source, target_lang=target)
    config.data = str(data.binary)
    # The defaults of these are references to other parts of fairseq's configuration.
    config.dataset_impl, config.required_seq_len_multiple = None, 1
    return TranslationTask.setup_task(config)
