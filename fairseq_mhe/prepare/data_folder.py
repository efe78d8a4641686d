"""A prepared data folder as the experiments see it: its text, its identity, and how to undo its segmentation."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fairseq_mhe.common.errors import UserError
from fairseq_mhe.common.files import no_colon
from fairseq_mhe.common.steps import key
from fairseq_mhe.prepare.detokenise import detokenise
from fairseq_mhe.prepare.manifest import read_manifest


@dataclass(frozen=True)
class Dataset:
    """A data folder and its manifest."""

    folder: Path
    manifest: dict[str, Any]

    @property
    def languages(self) -> tuple[str, str]:
        """Source and target."""
        return self.manifest["source_lang"], self.manifest["target_lang"]

    @property
    def binary(self) -> Path:
        """What fairseq's commands read."""
        return self.folder / "bin"

    @property
    def fingerprint(self) -> str:
        """A hash of the content of every file that was made: the same data have the same one on every machine."""
        steps = self.manifest["steps"].values()
        return key(
            {name: entry["sha256"] for step in steps for name, entry in step["files"].items()}
        )

    @property
    def identity(self) -> dict[str, Any]:
        """What a run's settings say of its data."""
        return {"languages": list(self.languages), "fingerprint": self.fingerprint}

    def text(self, subset: str, side: int) -> Path:
        """The detokenised text of a split; ``side`` 0 is the source, 1 the target."""
        return self.folder / "raw" / f"{subset}.{self.languages[side]}"

    def detokenise(self, lines: Iterable[str]) -> list[str]:
        """Subwords of the target language as text."""
        return list(detokenise(lines, self.manifest))


def open_dataset(folder: Path) -> Dataset:
    """The data folder ``folder``.

    Raises:
        UserError: it is none, or its preparation is not finished, or fairseq cannot read from such
        a path.
    """
    folder = folder.resolve()
    no_colon(folder)
    manifest = read_manifest(folder)
    if manifest.get("state") != "complete":
        raise UserError(
            f"{folder} is not finished: prepare it again, which goes on from where it was"
        )
    return Dataset(folder, manifest)
