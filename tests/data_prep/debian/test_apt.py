"""Tests of apt with a state of its own, on an archive in a folder."""

from __future__ import annotations

import shutil
from pathlib import Path
from urllib.parse import quote

import pytest

from debian.apt import from_apt
from debian.deb import read_package
from fairseq_mhe.common import files
from fairseq_mhe.common.errors import UserError
from fairseq_mhe.common.files import sha256
from fairseq_mhe.prepare.progress import silent
from tests.data_prep.debian.repository import write_repository

needs_apt = pytest.mark.skipif(shutil.which("apt-get") is None, reason="apt is Debian's")


@pytest.fixture
def sources(folder: Path, tmp_path: Path) -> Path:
    archive = write_repository(
        folder, tmp_path / "archive", "Release"
    )  # an InRelease would have to be signed
    path = tmp_path / "test.list"
    path.write_text(f"deb [trusted=yes] file:{quote(str(archive))} test main\n")
    return path


@needs_apt
def test_packages_and_descriptions(sources: Path, folder: Path, tmp_path: Path) -> None:
    system = Path("/var/lib/apt/lists")
    before = sorted(system.glob("*")) if system.exists() else []
    state, archives = tmp_path / "a state", tmp_path / "some archives"
    found = from_apt(state, archives, ["app", "manpages-d?", "nothing"], [], sources, silent)
    assert {read_package(path).name for path in found.packages} == {"app", "manpages-de"}
    assert (found.release, found.missing) == ("Test test", ("nothing",))
    assert [len(found.descriptions[lang]) for lang in ("en", "de")] == [1, 1]
    assert (sorted(system.glob("*")) if system.exists() else []) == before
    # What is there stays; what is damaged or missing is fetched again.
    one, other = found.packages
    kept, damaged = one.stat().st_mtime_ns, sha256(other)
    other.write_bytes(b"half")
    again = from_apt(state, archives, ["app", "manpages-d?"], [], sources, silent)
    assert again.packages == found.packages
    assert (one.stat().st_mtime_ns, sha256(other)) == (kept, damaged)


@needs_apt
def test_a_package_that_is_named_must_be_there(sources: Path, tmp_path: Path) -> None:
    with pytest.raises(UserError, match="apt has no package nothing, nowhere"):
        from_apt(
            tmp_path / "state",
            tmp_path / "debs",
            [],
            ["app", "nothing", "nowhere"],
            sources,
            silent,
        )
    with pytest.raises(UserError, match="apt has none of the 2 packages of the list"):
        from_apt(tmp_path / "state", tmp_path / "debs", ["nothing", "nowhere"], [], sources, silent)
    assert not (tmp_path / "debs").exists()


@needs_apt
def test_an_archive_that_cannot_be_reached_is_told(tmp_path: Path) -> None:
    (tmp_path / "none.list").write_text(f"deb [trusted=yes] file:{tmp_path}/nothing test main\n")
    with pytest.raises(UserError, match="apt-get update"):
        from_apt(tmp_path / "state", tmp_path / "debs", ["app"], [], tmp_path / "none.list", silent)
    assert not [path for path in (tmp_path / "state").glob("lists-*") if path.suffix != ".part"]
    with pytest.raises(UserError, match="--sources-list must name"):
        from_apt(tmp_path / "state", tmp_path / "debs", ["app"], [], tmp_path / "no.list", silent)


@needs_apt
def test_a_disk_that_is_too_small_is_told(
    sources: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    usage = shutil.disk_usage(tmp_path)
    monkeypatch.setattr(files.shutil, "disk_usage", lambda path: usage._replace(free=10))
    with pytest.raises(UserError, match="the download needs about"):
        from_apt(tmp_path / "state", tmp_path / "debs", ["app"], [], sources, silent)
    assert not list((tmp_path / "debs").rglob("*.deb"))


def test_without_apt_other_ways_are_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(UserError, match=r"apt-get is not there.*--mirror.*--folder"):
        from_apt(tmp_path / "state", tmp_path / "debs", ["app"], [], None, silent)
    assert not (tmp_path / "state").exists()
