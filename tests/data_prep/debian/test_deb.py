"""Tests of reading .deb files: every compression, and nothing that leads out of the package."""

from __future__ import annotations

from pathlib import Path

import pytest

from debian.deb import read_documents, read_package
from fairseq_mhe.common.errors import UserError
from tests.data_prep.debian.conftest import COMPRESS, ar, control, tar, write_deb

FILES = {"usr/share/a": b"one", "usr/share/b": b"two" * 9999}


@pytest.mark.parametrize("compression", COMPRESS)
def test_all_compressions_are_read(tmp_path: Path, compression: str) -> None:
    path = write_deb(
        tmp_path, "x", FILES, version="2:1.0", source="y (1.0)", compression=compression
    )
    package = read_package(path)
    assert (package.name, package.version, package.source) == ("x", "2:1.0", "y")
    assert dict(read_documents(path, lambda name: True)) == FILES
    assert dict(read_documents(path, lambda name: name.endswith("a"))) == {"usr/share/a": b"one"}


@pytest.mark.parametrize("name", ["./../../etc/x", "/etc/x", "./usr/../../x"])
def test_a_path_that_leads_out_is_refused(tmp_path: Path, name: str) -> None:
    path = write_deb(tmp_path, "x", {name: b"evil"})
    with pytest.raises(UserError, match="leads out of the package"):
        list(read_documents(path, lambda name: True))


@pytest.mark.parametrize("name", ["../../evil/escaped", "/tmp/x", "a/b", "A", "", "a" * 102])  # noqa: S108
def test_a_name_that_is_none_of_a_package_is_refused(tmp_path: Path, name: str) -> None:
    path = tmp_path / "x.deb"
    data = {"control.tar": tar({"./control": control(name).encode()}), "data.tar": tar({})}
    path.write_bytes(ar({"debian-binary": b"2.0\n", **data}))
    with pytest.raises(UserError, match=r"is no Debian package, or damaged: .*package's name"):
        read_package(path)


def test_links_are_not_followed(tmp_path: Path) -> None:
    path = write_deb(tmp_path, "x", FILES, links={"./usr/share/c": "/etc/passwd"})
    assert dict(read_documents(path, lambda name: True)) == FILES


def test_what_is_no_package_or_cut_short_is_told(tmp_path: Path) -> None:
    whole = write_deb(tmp_path, "x", FILES).read_bytes()
    broken = {
        "text": b"hello",
        "empty": b"",
        "short": whole[: len(whole) * 2 // 3],
        "no data": ar({"debian-binary": b"2.0\n"}),
        "other": ar({"debian-binary": b"2.0\n", "control.tar.xz": b"no", "data.tar.xz": b"no"}),
    }
    for name, content in broken.items():
        path = tmp_path / f"{name}.deb"
        path.write_bytes(content)
        with pytest.raises(UserError, match="is no Debian package, or damaged"):
            (read_package(path), list(read_documents(path, lambda name: True)))
