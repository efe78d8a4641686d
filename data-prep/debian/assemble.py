"""From packages to train, valid and test: parallel text that own_corpus.sh takes."""

from pathlib import Path
from typing import Any

from debian.apt import from_apt
from debian.corpus import KINDS, Corpus, record
from debian.deb import read_package
from debian.fetch import LANGS, Fetched, Origin, from_folder
from debian.mirror import from_mirror
from debian.packages import PACKAGES
from debian.split import LARGEST
from fairseq_mhe.common.errors import UserError
from fairseq_mhe.common.files import sha256
from fairseq_mhe.prepare.manifest import Manifest, open_manifest
from fairseq_mhe.prepare.parallel import ordered_map
from fairseq_mhe.prepare.progress import Report


def assemble(
    out: Path, origin: Origin, held_out: int, workers: int, report: Report
) -> dict[str, Any]:
    """Put train, valid and test into ``out``, and return what a manifest says of them.

    ``held_out``: pairs of valid, and of test.

    Raises:
        UserError: packages are missing or damaged, the disk is too small, or pairs are too few.
    """
    if held_out < LARGEST:
        raise UserError(
            f"--held-out is {held_out}; it must be at least {LARGEST}, since a package may have "
            f"one in {LARGEST} of them"
        )
    with open_manifest(out, {"corpus": "debian"}) as steps:
        fetched = _fetch(out / "apt", origin, report)
        return _assemble(steps, fetched, held_out, workers, report)


def _fetch(state: Path, origin: Origin, report: Report) -> Fetched:
    if origin.folder is not None:
        if not origin.folder.is_dir():
            raise UserError(
                f"{origin.folder} is not there; --folder must name a folder with .deb files"
            )
        names = {path: read_package(path).name for path in origin.folder.glob("*.deb")}
        return from_folder(origin.folder, origin.packages, names)
    if origin.mirror is not None:
        return from_mirror(
            origin.mirror, origin.release, origin.archives, PACKAGES, origin.packages, report
        )
    return from_apt(state, origin.archives, PACKAGES, origin.packages, origin.sources_list, report)


def _assemble(
    steps: Manifest, fetched: Fetched, held_out: int, workers: int, report: Report
) -> dict[str, Any]:
    packages = list(ordered_map(read_package, fetched.packages, workers))
    corpus = Corpus(steps, packages, fetched.descriptions)
    corpus.unpack(workers, report)
    read = {kind: corpus.read(kind, workers, report) for kind in KINDS}
    counts = corpus.split(held_out)
    steps.write("complete")
    descriptions = {lang: [sha256(path) for path in fetched.descriptions[lang]] for lang in LANGS}
    return {
        "corpus": "debian",
        "release": fetched.release,
        "packages": {package.name: record(package) for package in packages},
        "descriptions": descriptions,
        "missing": sorted(fetched.missing),
        "read": read,
        "split": counts,
    }
