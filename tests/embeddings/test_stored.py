"""Hashes beside a dictionary: what they spare, and files that do not fit."""

from __future__ import annotations

import contextlib
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from fairseq_mhe.common.errors import UserError
from fairseq_mhe.embeddings import HASHES, build_hashed, check_hash, folder_of, write_hashes
from fairseq_mhe.embeddings.hashes import Hash
from fairseq_mhe.embeddings.stored import FILE, take_hashes
from tests.embeddings.test_hashes import dictionary

WORDS = ("stored", "words")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A dictionary's hashes by lsh."""
    write_hashes(tmp_path, dictionary(*WORDS), "lsh")
    return tmp_path


def test_stored_hashes_are_those_computed(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The dictionary may have more entries by now, as <mask>, which a task adds."""
    expected = [(HASHES["lsh"].bits(word), HASHES["lsh"].row(word)) for word in WORDS]

    def fail(word: str) -> bytes:
        raise AssertionError(f"{word} was hashed again")

    monkeypatch.setitem(HASHES, "lsh", Hash("lsh", fail, fail))  # type: ignore[arg-type]
    take_hashes(folder, dictionary(*WORDS, "<mask>"), "lsh")
    assert [(HASHES["lsh"].bits(word), HASHES["lsh"].row(word)) for word in WORDS] == expected


def test_another_hash_is_refused_in_one_line(folder: Path) -> None:
    told = f"the words in {folder} are hashed by lsh, not by md5 as the model's: give --hash lsh, "
    for refused in (
        lambda: build_hashed("hash_add", None, dictionary(*WORDS), 8, folder=folder),
        lambda: check_hash(folder, "md5"),
    ):
        with pytest.raises(UserError) as error:
            refused()
        assert str(error.value).startswith(told)
    check_hash(folder, "lsh")
    check_hash(folder.parent, "md5")  # no hashes, any hash


def test_a_file_that_does_not_fit_is_refused(folder: Path) -> None:
    with pytest.raises(UserError, match=r"hashes.npz is not of .*dict.txt: prepare the data again"):
        take_hashes(folder, dictionary("other", "words"), "lsh")
    whole = (folder / FILE).read_bytes()
    for damaged in (b"", b"no zip", whole[:100], whole[:-30]):
        (folder / FILE).write_bytes(damaged)
        with pytest.raises(UserError, match=r"hashes.npz cannot be read .*: prepare the data"):
            take_hashes(folder, dictionary(*WORDS), "lsh")
    for place in range(30, len(whole), 3):  # nothing else, whatever is wrong with it
        (folder / FILE).write_bytes(
            whole[:place] + bytes([whole[place] ^ 255]) + whole[place + 1 :]
        )
        with contextlib.suppress(UserError):
            take_hashes(folder, dictionary(*WORDS), "lsh")
    one = np.zeros(1)
    np.savez(folder / FILE, hash=np.array("lsh"), words=one, bits=one, rows=one)
    with pytest.raises(UserError, match=r"hashes.npz has no hashes of words: prepare the data"):
        take_hashes(folder, dictionary(*WORDS), "lsh")


def test_a_tasks_folder(tmp_path: Path) -> None:
    task = SimpleNamespace(cfg=SimpleNamespace(data=f"{tmp_path}:/other"))
    assert folder_of(task) == tmp_path
    (tmp_path / "input0").mkdir()
    assert folder_of(task) == tmp_path / "input0"
    assert folder_of(SimpleNamespace()) is None
