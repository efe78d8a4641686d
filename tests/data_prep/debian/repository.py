"""A tiny Debian archive with a folder's packages and descriptions, as apt and mirrors have it."""

from __future__ import annotations

import bz2
import hashlib
import lzma
import shutil
from pathlib import Path

from debian.deb import read_package
from tests.data_prep.debian.conftest import control


def write_repository(folder: Path, out: Path, release: str) -> Path:
    """Make the archive in ``out``; ``release``: what lists the files, InRelease or Release."""
    suite = "test"
    lists = out / "dists" / suite / "main"
    for architecture in ("amd64", "arm64", "i386", "armhf", "riscv64", "ppc64el", "s390x"):
        (lists / f"binary-{architecture}").mkdir(parents=True)
    (lists / "i18n").mkdir()
    (out / "pool").mkdir()
    stanzas = []
    for path in sorted(folder.glob("*.deb")):
        package = read_package(path)
        name = path.name.replace("%3a", "").replace(":", "")
        shutil.copy(path, out / "pool" / name)
        stanza = control(
            package.name,
            package.version,
            package.source if package.source != package.name else None,
        )
        stanzas.append(
            f"{stanza}Filename: pool/{name}\n"
            f"Size: {path.stat().st_size}\nSHA256: {package.sha256}\n"
        )
    packages = lzma.compress("\n".join(stanzas).encode())
    for place in lists.glob("binary-*"):
        (place / "Packages.xz").write_bytes(packages)
    for lang in ("en", "de"):
        (path,) = folder.glob(f"*Translation-{lang}")
        (lists / "i18n" / f"Translation-{lang}.bz2").write_bytes(bz2.compress(path.read_bytes()))
    top = out / "dists" / suite
    # As in Debian, the plain files are listed, too, but only the compressed ones are there.
    listed = {}
    for path in sorted(path for path in lists.rglob("*") if path.is_file()):
        raw = path.read_bytes()
        plain = lzma.decompress(raw) if path.suffix == ".xz" else bz2.decompress(raw)
        listed |= {path.relative_to(top): raw, path.relative_to(top).with_suffix(""): plain}
    checksums = "".join(
        f" {hashlib.sha256(raw).hexdigest()} {len(raw)} {path}\n" for path, raw in listed.items()
    )
    architectures = " ".join(
        place.name.removeprefix("binary-") for place in sorted(lists.glob("binary-*"))
    )
    (top / release).write_text(
        f"Origin: Test\nLabel: Test\nSuite: {suite}\nCodename: {suite}\n"
        "Date: Sat, 01 Jan 2022 00:00:00 UTC\n"
        f"Architectures: {architectures}\nComponents: main\nSHA256:\n{checksums}"
    )
    return out
