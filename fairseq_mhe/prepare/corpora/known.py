"""What the modules of known corpora share: options, downloads and known numbers of lines."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from fairseq_mhe.common.arguments import option
from fairseq_mhe.common.files import sha256, yaml_beside
from fairseq_mhe.common.progress import say
from fairseq_mhe.prepare.config import ORIGINAL, PrepareConfig
from fairseq_mhe.prepare.download import RemoteFile, download
from fairseq_mhe.prepare.manifest import DOWNLOADED, Facts, open_manifest, read_manifest
from fairseq_mhe.prepare.parallel_text import prepare

#: Corpus -> its published files, and the number of lines of each split.
KNOWN = yaml_beside(__file__, "files.yaml")


def out_option(default: str) -> Any:
    """Return the field of --out, with the default of a corpus."""
    return option(Path(default), "new data folder", type=Path, metavar="DATA")


@dataclass(frozen=True, kw_only=True)
class Downloads:
    """A corpus that is downloaded: --mirror, and the folder of the published text."""

    out: Path
    mirror: str | None = option(
        None, "download from URL/NAME; same checksums", metavar="URL"
    )

    @property
    def original(self) -> Path:
        """The folder that the published text is unpacked into."""
        return self.out / ORIGINAL

    def unpack(
        self, published: Sequence[Facts], action: Callable[[list[Path], Path], None]
    ) -> None:
        """Download files; `original` gets what ``action(paths, work)`` writes into ``work``."""
        files = [RemoteFile(**file) for file in published]

        def extract(work: Path) -> dict[str, str]:
            paths = download(files, self.original / "archives", self.mirror)
            action(paths, work)
            return {path.name: sha256(path) for path in paths}  # not all are published

        checksums = {file.name: file.sha256 for file in files}
        with open_manifest(self.original, DOWNLOADED, {}) as manifest:
            manifest.run("extract", checksums, extract)
            manifest.complete()


@dataclass(frozen=True)
class PairCorpus(PrepareConfig):
    """A known parallel corpus; its texts and languages are fields, but not options."""

    train: Sequence[Path] = ()
    valid: Path | None = None
    test: Path | None = None
    hold_out: int | None = None
    source_lang: str = "en"
    target_lang: str = "de"

    def make(self, corpus: str, **texts: Any) -> Path:
        """Make the data folder of ``texts`` (train, valid, test); errors as in `prepare`."""
        data = prepare(replace(self, **texts), {"corpus": corpus})
        warn_of_lines(data, corpus)
        return data


def warn_of_lines(data: Path, corpus: str) -> None:
    """Warn of splits with another number of lines than files.yaml has for the corpus."""
    expected = KNOWN[corpus]["lines"]
    for split, count in read_manifest(data)["lines"].items():
        if count != expected.get(split, count):
            say(f"warning: {split} has {count:,} lines instead of {expected[split]:,}")
