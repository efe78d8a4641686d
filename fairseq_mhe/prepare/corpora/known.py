"""What the known corpora share: downloads, and options."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from fairseq_mhe.common.files import sha256, yaml_beside
from fairseq_mhe.common.progress import say
from fairseq_mhe.prepare.config import ORIGINAL, PrepareConfig, option
from fairseq_mhe.prepare.download import RemoteFile, download
from fairseq_mhe.prepare.manifest import DOWNLOADED, open_manifest, read_manifest
from fairseq_mhe.prepare.parallel_text import prepare

_KNOWN = yaml_beside(__file__, "files.yaml")
#: Corpus -> its published files.
PUBLISHED = {
    name: [RemoteFile(**file) for file in known["files"]]
    for name, known in _KNOWN.items()
}


def default_out(default: str) -> Any:
    """The field of the folder to make."""
    return option(Path(default), "new data folder", type=Path, metavar="DATA")


@dataclass(frozen=True, kw_only=True)
class Downloads:
    """A published corpus: where its files come from, and where they are put."""

    out: Path
    mirror: str | None = option(
        None, "download from URL/NAME; same checksums", metavar="URL"
    )

    @property
    def original(self) -> Path:
        """The folder of the published text."""
        return self.out / ORIGINAL

    def unpack(
        self, files: Sequence[RemoteFile], action: Callable[[list[Path], Path], None]
    ) -> None:
        """Download ``files``, and keep in ``original`` what ``action`` writes of them, once."""

        def extract(work: Path) -> dict[str, str]:
            paths = download(files, self.original / "archives", self.mirror)
            action(paths, work)
            return {path.name: sha256(path) for path in paths}  # not all are published

        published = {file.name: file.sha256 for file in files}
        with open_manifest(self.original, DOWNLOADED, {}) as manifest:
            manifest.run("extract", published, extract)
            manifest.complete()


@dataclass(frozen=True)
class PairCorpus(PrepareConfig):
    """A known parallel corpus; fields without help are no options."""

    train: Sequence[Path] = ()
    valid: Path | None = None
    test: Path | None = None
    hold_out: int | None = None
    source_lang: str = "en"
    target_lang: str = "de"

    def make(self, corpus: str, **texts: Any) -> Path:
        """The data folder of ``texts`` (train, valid, test); errors as `parallel_text.prepare`."""
        data = prepare(replace(self, **texts), {"corpus": corpus})
        warn_of_lines(data, corpus)
        return data


def warn_of_lines(data: Path, corpus: str) -> None:
    """Say which splits of a data folder have other numbers of lines than is known."""
    known = _KNOWN[corpus]["lines"]
    for split, count in read_manifest(data)["lines"].items():
        if count != known.get(split, count):
            say(f"warning: {split} has {count:,} lines, known are {known[split]:,}")
