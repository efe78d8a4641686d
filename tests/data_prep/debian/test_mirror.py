"""Tests of a mirror without apt: what is named in the release, verified."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from debian.deb import read_package
from debian.mirror import from_mirror
from fairseq_mhe.common.errors import UserError
from fairseq_mhe.prepare.progress import silent
from tests.data_prep.debian.repository import write_repository
from tests.fixtures.miniature import serve


@pytest.fixture
def url(folder: Path, tmp_path: Path) -> Iterator[str]:
    with serve(write_repository(folder, tmp_path / "mirror", "InRelease")) as server:
        yield server.url


def test_packages_and_descriptions(url: str, folder: Path, tmp_path: Path) -> None:
    found = from_mirror(
        url, "test", tmp_path / "debs", ["app", "manpages-d?", "nothing"], [], silent
    )
    assert {read_package(path).name for path in found.packages} == {"app", "manpages-de"}
    assert (found.release, found.missing) == ("Test test", ("nothing",))
    assert {lang: [path.name for path in paths] for lang, paths in found.descriptions.items()} == {
        "en": ["Translation-en.bz2"],
        "de": ["Translation-de.bz2"],
    }


def test_what_it_lacks_is_told(url: str, tmp_path: Path) -> None:
    with pytest.raises(UserError, match="has no package nothing"):
        from_mirror(url, "test", tmp_path / "debs", [], ["app", "nothing"], silent)
    with pytest.raises(UserError, match=r"cannot download .*/dists/other/InRelease"):
        from_mirror(url, "other", tmp_path / "debs", ["app"], [], silent)


def test_lists_of_before_are_named_where_the_mirror_has_moved_on(
    url: str, folder: Path, tmp_path: Path
) -> None:
    """As after a point release: what the old lists name is gone."""
    from_mirror(url, "test", tmp_path / "debs", ["app"], [], silent)
    (package,) = (tmp_path / "mirror" / "pool").glob("manpages-de_*.deb")
    package.unlink()
    lists = tmp_path / "debs" / "lists-test"
    with pytest.raises(UserError, match=rf"404 .*; if the release has changed, delete {lists}"):
        from_mirror(url, "test", tmp_path / "debs", ["app", "manpages-de"], [], silent)


def test_another_file_is_refused(url: str, tmp_path: Path) -> None:
    (package,) = (tmp_path / "mirror" / "pool").glob("app_*.deb")
    package.write_bytes(package.read_bytes()[:-1] + b"x")
    with pytest.raises(UserError, match="it was not kept"):
        from_mirror(url, "test", tmp_path / "debs", ["app"], [], silent)
    assert not list((tmp_path / "debs").glob("*.deb*"))


def test_another_list_is_refused(url: str, tmp_path: Path) -> None:
    path = tmp_path / "mirror" / "dists" / "test" / "main" / "binary-amd64" / "Packages.xz"
    path.write_bytes(path.read_bytes()[:-1] + b"x")
    with pytest.raises(UserError, match=r"Packages\.xz: what came .* it was not kept"):
        from_mirror(url, "test", tmp_path / "debs", ["app"], [], silent)
