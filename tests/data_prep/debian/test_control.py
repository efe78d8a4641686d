"""Tests of Debian's control data."""

from __future__ import annotations

import lzma
from pathlib import Path

import pytest

from debian.control import read_stanzas, source_of, stanzas
from fairseq_mhe.common.errors import UserError

TEXT = "# a comment\nPackage: a\nSource: b (1.0)\nDescription: one: two\n more\n .\n end\n\n\n"
TEXT += "Package: c\n"


def test_stanzas(tmp_path: Path) -> None:
    expected = [
        {"Package": "a", "Source": "b (1.0)", "Description": "one: two\n more\n .\n end"},
        {"Package": "c"},
    ]
    assert list(stanzas(TEXT.split("\n"))) == expected
    (tmp_path / "Packages.xz").write_bytes(lzma.compress(TEXT.encode()))
    assert list(read_stanzas(tmp_path / "Packages.xz")) == expected
    assert [source_of(stanza) for stanza in expected] == ["b", "c"]
    assert source_of({"Package": "a", "Source": ""}) == "a"


def test_a_damaged_list_is_told(tmp_path: Path) -> None:
    (tmp_path / "Packages.xz").write_bytes(lzma.compress(TEXT.encode())[:-9])
    with pytest.raises(UserError, match="damaged or cut short"):
        list(read_stanzas(tmp_path / "Packages.xz"))
