"""Tests of package descriptions: joined by checksum, cut into paragraphs and items."""

from __future__ import annotations

import bz2
from pathlib import Path

import pytest

from debian.descriptions import paragraphs, read_descriptions
from fairseq_mhe.common.errors import UserError

ENGLISH = """Package: one
Description-md5: 1
Description-en: a tool
 It does
 something.
 .
 Parts:
  * the first
    item
  * the second

Package: two
Description-md5: 2
Description-en: another tool
 Text.
"""
GERMAN = """Package: one
Description-md5: 1
Description-de: ein Werkzeug
 Es tut etwas.
 .
 Teile:
  * der erste Punkt
  * der zweite

Package: two
Description-md5: 2
Description-de: ein anderes Werkzeug
 Text.
 .
 Noch mehr Text.

Package: three
Description-md5: 3
Description-de: nur deutsch
"""


def test_paragraphs_and_items() -> None:
    assert paragraphs(
        "a tool\n It does\n something.\n .\n Parts:\n  * the first\n    item\n  * the second"
    ) == ["a tool", "It does something.", "Parts:", "the first item", "the second"]


def test_descriptions_are_joined(tmp_path: Path) -> None:
    (tmp_path / "en").write_text(ENGLISH)
    (tmp_path / "de.bz2").write_bytes(bz2.compress(GERMAN.encode()))
    found = dict(read_descriptions([tmp_path / "en"], [tmp_path / "de.bz2"]))
    assert found["one"][0] == ("a tool", "ein Werkzeug")
    assert found["one"][-1] == ("the second", "der zweite")
    assert found["two"] == [("another tool", "ein anderes Werkzeug")]  # paragraphs differ in number
    assert set(found) == {"one", "two"}


def test_wrong_encoding_is_told(tmp_path: Path) -> None:
    (tmp_path / "en").write_text(ENGLISH)
    (tmp_path / "de").write_bytes(GERMAN.replace("Teile", "Stücke").encode("latin-1"))
    with pytest.raises(UserError, match="de is not UTF-8"):
        list(read_descriptions([tmp_path / "en"], [tmp_path / "de"]))
