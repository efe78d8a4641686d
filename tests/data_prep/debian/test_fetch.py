"""Tests of how packages are chosen, and of what a folder has."""

from __future__ import annotations

from pathlib import Path

import pytest

from debian.deb import read_package
from debian.fetch import Fetched, choose, from_folder
from debian.packages import PACKAGES
from fairseq_mhe.common.errors import UserError
from tests.data_prep.debian.conftest import write_deb


def in_folder(folder: Path, *named: str) -> Fetched:
    return from_folder(
        folder, named, {path: read_package(path).name for path in folder.glob("*.deb")}
    )


def test_patterns_stand_for_the_last_version() -> None:
    known = ["gcc-9-locales", "gcc-12-locales", "git", "kdoctools5", "kdoctools6"]
    assert choose(["gcc-*-locales", "git", "nothing", "kdoctools[0-9]"], known) == (
        ["gcc-12-locales", "git", "kdoctools6"],
        ["nothing"],
    )


def test_the_list_names_each_package_once() -> None:
    assert len(PACKAGES) == len(set(PACKAGES)) > 400
    assert {"manpages-de", "libreoffice-help-de", "lyx-common", "kdoctools[0-9]"} <= set(PACKAGES)


def test_a_folder(tmp_path: Path) -> None:
    paths = [write_deb(tmp_path, name, {}) for name in ("b", "a")]
    (tmp_path / "deb.debian.org_x_Translation-de.bz2").write_bytes(b"")
    found = in_folder(tmp_path)
    assert found.packages == (paths[1], paths[0])
    assert [path.name for path in found.descriptions["de"]] == [
        "deb.debian.org_x_Translation-de.bz2"
    ]
    assert in_folder(tmp_path, "b").packages == (paths[0],)


def test_what_a_folder_lacks_is_told(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"has no \.deb file, nor Translation-en"):
        in_folder(tmp_path)
    write_deb(tmp_path, "a", {})
    with pytest.raises(UserError, match="has no package x, y"):
        in_folder(tmp_path, "a", "x", "y")
    write_deb(tmp_path, "a", {}, version="2")
    with pytest.raises(UserError, match="are both the package a"):
        in_folder(tmp_path)
