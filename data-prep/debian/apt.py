"""Packages through apt, with lists and a cache of its own, without rights over the system."""

import os
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path

from debian.control import Stanza, stanzas
from debian.fetch import LANGS, Fetched, choose, refuse_missing, translation_files
from fairseq_mhe.common.errors import UserError
from fairseq_mhe.common.files import check_room, sha256, write_text
from fairseq_mhe.prepare.download import MB
from fairseq_mhe.prepare.progress import Report

BATCH = 25 * MB  # of packages that apt is told to download at a time
# Read by apt after the system's own files, so that proxies and the like are kept, but no hook of
# the system is run.
SETTINGS = """\
#clear APT::Update::Pre-Invoke;
#clear APT::Update::Post-Invoke;
#clear APT::Update::Post-Invoke-Success;
#clear Acquire::Languages;
Acquire::Languages { "en"; "de"; };
Acquire::GzipIndexes "false";
Dir::Cache::pkgcache "pkgcache.bin";
Dir::Cache::srcpkgcache "srcpkgcache.bin";
APT::Sandbox::User "root";
"""


class Apt:
    """apt with its state in ``folder``; ``sources``: a list of sources in place of the system's."""

    def __init__(self, folder: Path, sources: Path | None) -> None:
        """Make the folder ready.

        Raises:
            UserError: there is no apt on this machine, or no such list.
        """
        if shutil.which("apt-get") is None or shutil.which("apt-cache") is None:
            raise UserError(
                "apt-get is not there, as on systems other than Debian and its like; "
                "name a --mirror to download from, or a --folder with .deb files"
            )
        if sources is not None and not sources.is_file():
            raise UserError(
                f"{sources} is not there; --sources-list must name a list of apt sources"
            )
        self.folder = folder.resolve()
        self.lists = self.folder / f"lists-{sha256(sources)[:8] if sources else 'system'}"
        self._new_lists = self.lists.with_suffix(".part")
        for needed in (self._new_lists / "partial", self.folder / "cache/archives/partial"):
            needed.mkdir(parents=True, exist_ok=True)
        write_text(self.folder / "settings", SETTINGS)
        write_text(self.folder / "status", "")  # no package is installed, as far as this apt knows
        self._options = [
            f"--config-file={self.folder / 'settings'}",
            *self._set("Dir::State", self.folder),
            *self._set("Dir::State::status", self.folder / "status"),
            *self._set("Dir::Cache", self.folder / "cache"),
        ]
        if sources is not None:
            self._options += [
                *self._set("Dir::Etc::sourcelist", sources.resolve()),
                *self._set("Dir::Etc::sourceparts", "-"),
            ]

    @staticmethod
    def _set(name: str, value: Path | str) -> list[str]:
        return ["-o", f"{name}={value}"]

    def _run(
        self, command: str, *words: str, lists: Path | None = None, cwd: Path | None = None
    ) -> str:
        """The output of an apt command.

        Raises:
            UserError: it failed; apt's own reason is told.
        """
        options = [*self._options, *self._set("Dir::State::lists", lists or self.lists)]
        result = subprocess.run(
            [command, *options, *words],
            cwd=cwd,
            env={**os.environ, "LC_ALL": "C.UTF-8"},
            stdin=subprocess.DEVNULL,
            text=True,
            capture_output=True,
        )
        if result.returncode:
            said = [line for line in result.stderr.splitlines() if line.startswith(("E:", "W:"))]
            raise UserError(
                f"{command} {words[0]} failed: {said[0] if said else result.stderr.strip()}"
            )
        return result.stdout

    def update(self, report: Report) -> None:
        """Get the lists of packages and descriptions, unless they are there.

        Raises:
            UserError: they cannot be had.
        """
        if not self.lists.exists():
            report("lists of packages", 0, 1)
            self._run("apt-get", "update", lists=self._new_lists)
            if not any(self._new_lists.glob("*_Packages*")):
                raise UserError(
                    "apt-get update brought no list of packages; "
                    "see that 'apt-get update' works here"
                )
            self._new_lists.rename(self.lists)
        report("lists of packages", 1, 1)

    def release(self) -> str:
        """Where the packages are from, as "Debian bookworm"."""
        lines = self._run(
            "apt-get", "indextargets", "--format", "$(LABEL) $(CODENAME)", "Created-By: Packages"
        ).splitlines()
        return ", ".join(dict.fromkeys(line.strip() for line in lines))

    def known(self) -> set[str]:
        """The names of all packages that apt knows of."""
        return set(self._run("apt-cache", "pkgnames").split())

    def show(self, names: Sequence[str]) -> list[Stanza]:
        """What apt knows of each package, in the version that it would install."""
        output = self._run("apt-cache", "show", "--no-all-versions", *names) if names else ""
        return list(stanzas(output.split("\n")))

    def download(self, stanzas_: Sequence[Stanza], out: Path, report: Report) -> list[Path]:
        """The packages' files in ``out``; what is there and right is not downloaded again.

        Raises:
            UserError: one cannot be had, or the disk is too small.
        """
        paths = {stanza["SHA256"]: out / file_name(stanza) for stanza in stanzas_}
        absent = [s for s in stanzas_ if not _is_right(paths[s["SHA256"]], s["SHA256"])]
        total = sum(int(s["Size"]) for s in stanzas_)
        done = total - sum(int(s["Size"]) for s in absent)
        part = out / "part"
        part.mkdir(parents=True, exist_ok=True)
        check_room(out, total - done, "the download")
        for batch in batches(absent):
            report("download packages, MB", done // MB, max(1, total // MB))
            self._run(
                "apt-get", "download", *(f"{s['Package']}={s['Version']}" for s in batch), cwd=part
            )
            for path in part.glob("*.deb"):
                if (checksum := sha256(path)) in paths:
                    path.rename(paths[checksum])
            done += sum(int(s["Size"]) for s in batch)
        shutil.rmtree(part)
        for stanza in stanzas_:
            if not paths[stanza["SHA256"]].exists():
                raise UserError(
                    f"apt-get has not downloaded {file_name(stanza)}; run the same command again"
                )
        report("download packages, MB", max(1, total // MB), max(1, total // MB))
        return [paths[stanza["SHA256"]] for stanza in stanzas_]


def file_name(stanza: Stanza) -> str:
    """What apt calls the file of a package."""
    return (
        f"{stanza['Package']}_{stanza['Version'].replace(':', '%3a')}_{stanza['Architecture']}.deb"
    )


def batches(found: Sequence[Stanza]) -> Iterator[list[Stanza]]:
    """Packages in groups of about `BATCH` bytes, so that what is done can be seen."""
    batch: list[Stanza] = []
    for stanza in found:
        batch.append(stanza)
        if sum(int(one["Size"]) for one in batch) >= BATCH:
            yield batch
            batch = []
    if batch:
        yield batch


def _is_right(path: Path, checksum: str) -> bool:
    return path.exists() and sha256(path) == checksum


def from_apt(
    state: Path,
    archives: Path,
    wanted: Sequence[str],
    named: Sequence[str],
    sources: Path | None,
    report: Report,
) -> Fetched:
    """Download ``named``, or else ``wanted``, packages into ``archives``.

    Raises:
        UserError: as `Apt`; or a package that is named is not to be had.
    """
    apt = Apt(state, sources)
    apt.update(report)
    chosen, missing = choose(named or wanted, apt.known())
    refuse_missing(named, missing, "apt", chosen)
    found = apt.show(chosen)
    paths = apt.download(found, archives, report)
    virtual = sorted(set(chosen) - {stanza["Package"] for stanza in found})
    descriptions = {lang: translation_files(apt.lists, lang) for lang in LANGS}
    return Fetched(apt.release(), tuple(paths), descriptions, (*missing, *virtual))
