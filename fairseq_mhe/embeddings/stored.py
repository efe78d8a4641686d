"""The hashes of a dictionary's words as a file beside it: computed once, when the data are made."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from fairseq_mhe.common.errors import UserError
from fairseq_mhe.embeddings.hashes import BITS, ROWS, hash_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from fairseq.data import Dictionary

FILE = "hashes.npz"


def write_hashes(folder: Path, dictionary: Dictionary, name: str) -> None:
    """Write FOLDER/hashes.npz: the hash ``name`` of all words of FOLDER/dict.txt.

    Raises:
        ValueError: there is no such hash.
    """
    hash_, words = hash_of(name), dictionary.symbols[dictionary.nspecial :]
    bits = b"".join(map(hash_.bits, words))
    np.savez_compressed(
        folder / FILE,
        hash=np.array(name),
        words=np.array(_checksum(words)),
        bits=np.frombuffer(bits, np.uint8).reshape(len(words), BITS // 8),
        rows=np.array(list(map(hash_.row, words)), np.int32),
    )


def hash_in(folder: Path) -> str | None:
    """The hash that a folder's words have been given; None where they have been given none.

    Raises:
        UserError: the file cannot be read.
    """
    stored = _read(folder)
    return None if stored is None else str(stored["hash"])


def check_hash(folder: Path, name: str) -> None:
    """See that the words of a folder have not been hashed by another than ``name``.

    Raises:
        UserError: they have.
    """
    _check(folder, hash_in(folder), name)


def _check(folder: Path, found: str | None, name: str) -> None:
    if found not in (None, name):
        raise UserError(
            f"the words in {folder} are hashed by {found}, not by {name} as the model's: give "
            f"--hash {found}, or prepare the data again with --hash {name}"
        )


def take_hashes(folder: Path, dictionary: Dictionary, name: str) -> None:
    """Spare the hash ``name`` the words of a folder, where there is a file of them.

    Raises:
        UserError: the file is of another hash or of another dictionary, or cannot be read.
    """
    stored = _read(folder)
    if stored is None:
        return
    _check(folder, str(stored["hash"]), name)
    first, count = dictionary.nspecial, len(stored["rows"])
    words = dictionary.symbols[first : first + count]
    if _checksum(words) != str(stored["words"]):
        raise UserError(f"{folder / FILE} is not of {folder / 'dict.txt'}: prepare the data again")
    for word, bits, row in zip(words, stored["bits"], stored["rows"].tolist(), strict=True):
        hash_of(name).remember(word, bits.tobytes(), row)


def _checksum(words: Sequence[str]) -> str:
    return hashlib.sha256("\n".join(words).encode()).hexdigest()


def _read(folder: Path) -> dict[str, Any] | None:
    """The file's arrays, of the form that `write_hashes` gives them; None where there is none."""
    path = folder / FILE
    if not path.is_file():
        return None
    try:
        with np.load(path, allow_pickle=False) as stored:
            found = {name: stored[name] for name in ("hash", "words", "bits", "rows")}
    except Exception as error:  # as many kinds as there are damaged files
        raise UserError(f"{path} cannot be read ({error}): prepare the data again") from None
    bits, rows = found["bits"], found["rows"]
    whole = bits.dtype == np.uint8 and rows.ndim == 1 and bits.shape == (len(rows), BITS // 8)
    if not whole or not ((rows >= 0) & (rows < ROWS)).all():
        raise UserError(f"{path} has no hashes of words: prepare the data again")
    return found
