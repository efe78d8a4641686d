"""Packages from a Debian mirror, without apt, each file verified by the release's checksums."""

import re
from collections.abc import Sequence
from pathlib import Path

from debian.control import OPENERS, Stanza, read_stanzas
from debian.fetch import LANGS, Fetched, choose, refuse_missing
from fairseq_mhe.common.errors import UserError
from fairseq_mhe.prepare.download import RemoteFile, obtain, obtain_all
from fairseq_mhe.prepare.progress import Report

ARCHITECTURE = "amd64"  # what is read of packages is the same in all
CHECKSUM = re.compile(r"^ ([0-9a-f]{64})\s+(\d+)\s+(\S+)$", re.M)


def indexes(release: str) -> dict[str, tuple[int, str]]:
    """Path -> size and SHA-256 of the files that a release's InRelease names."""
    section = release.partition("\nSHA256:")[2]
    return {path: (int(size), checksum) for checksum, size, path in CHECKSUM.findall(section)}


def from_mirror(
    mirror: str,
    release: str,
    archives: Path,
    wanted: Sequence[str],
    named: Sequence[str],
    report: Report,
) -> Fetched:
    """Download ``named``, or else ``wanted``, packages of a release's main into ``archives``.

    The release's own signature is not verified, so ``mirror`` should be one that is reached by
    https.

    Raises:
        UserError: a file cannot be had or is another one; the mirror has no such release; or a
        package that is named is not in it.
    """
    place = f"{mirror.rstrip('/')}/dists/{release}"
    lists = archives / f"lists-{release}"
    text = obtain(RemoteFile(f"{place}/InRelease"), lists, report).read_text(encoding="utf-8")
    known = indexes(text)

    def get(files: Sequence[RemoteFile], folder: Path) -> list[Path]:
        try:
            return obtain_all(files, folder, report)
        except UserError as error:
            # What the lists of an earlier run name may be gone.
            raise UserError(f"{error}; if the release has changed, delete {lists}") from error

    def index(path: str) -> Path:
        """One of the release's lists, in the first compression that it has."""
        for suffix in OPENERS:
            if f"{path}{suffix}" in known:
                file = RemoteFile(f"{place}/{path}{suffix}", *known[f"{path}{suffix}"])
                return get([file], lists)[0]
        raise UserError(
            f"{place}/InRelease names no {path}; "
            f"is this a Debian mirror, and {release} a release of it?"
        )

    packages: dict[str, Stanza] = {}
    for stanza in read_stanzas(index(f"main/binary-{ARCHITECTURE}/Packages")):
        packages[stanza["Package"]] = stanza
    chosen, missing = choose(named or wanted, packages)
    refuse_missing(named, missing, place, chosen)
    files = [
        RemoteFile(
            f"{mirror.rstrip('/')}/{stanza['Filename']}", int(stanza["Size"]), stanza["SHA256"]
        )
        for stanza in map(packages.__getitem__, chosen)
    ]
    descriptions: dict[str, tuple[Path, ...]] = {
        lang: (index(f"main/i18n/Translation-{lang}"),) for lang in LANGS
    }
    label = re.search(r"^Label: (.+)$", text, re.M)
    name = f"{label[1] if label else 'Debian'} {release}"
    return Fetched(name, tuple(get(files, archives)), descriptions, tuple(missing))
