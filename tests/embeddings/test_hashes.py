"""Hashes of words: known digests, the same everywhere, collisions counted, near words near."""

from __future__ import annotations

import hashlib
import math
import subprocess
from collections import Counter
from functools import partial

import numpy as np
import pytest
from fairseq.data import Dictionary

from fairseq_mhe.embeddings import HASHES, hash_of, hashes, hashes_of
from fairseq_mhe.embeddings.hashes import MASK, ROWS, trigrams
from tests.fixtures.processes import PYTHON

WORDS = ["hello", "world", "the", "walking", "walked", "a", "übergrößenträger", "…"]


def dictionary(*words: str) -> Dictionary:
    found = Dictionary()
    for word in words:
        found.add_symbol(word)
    return found


def hmac_md5(word: str) -> int:
    """RFC 2104 written out, for the key "en" and a block of 64 bytes."""
    key = b"en".ljust(64, b"\0")
    md5 = partial(hashlib.md5, usedforsecurity=False)
    inner = md5(bytes(b ^ 0x36 for b in key) + word.encode()).digest()
    return int(md5(bytes(b ^ 0x5C for b in key) + inner).hexdigest(), 16)


def test_known_digests() -> None:
    """Those of HashFormers' code."""
    rows = hashes_of(dictionary("hello", "world", "the", MASK), "md5").rows()
    assert rows.tolist() == [0, 1, 2, 3, 46797, 25238, 20664, 4]


@pytest.mark.parametrize("word", WORDS)
def test_md5_is_the_rfcs(word: str) -> None:
    value = hmac_md5(word)
    assert HASHES["md5"].row(word) == value % ROWS
    bits = hashes_of(dictionary(word), "md5").bits()[4]
    assert "".join(str(int(bit)) for bit in bits) == format(value, "0>128b")


@pytest.mark.parametrize("word", WORDS)
def test_lsh_is_its_definition(word: str) -> None:
    padded = f" {word} "
    features = Counter(padded[i : i + 3] for i in range(len(word)))
    assert trigrams(word) == features
    total = np.zeros(128)
    g = np.random.RandomState(42).standard_normal(ROWS)
    scores = [0.0] * ROWS
    for feature, count in features.items():
        seed = hmac_md5(feature) >> 96
        total += count * np.random.RandomState(seed).standard_normal(128)
        first = np.roll(g, -(hmac_md5(feature) % ROWS))[: ROWS // 2]
        for index, value in enumerate(count * first):
            scores[index] += value
            scores[ROWS // 2 + index] -= value
    assert hashes_of(dictionary(word), "lsh").bits()[4].tolist() == (total > 0).tolist()
    assert HASHES["lsh"].row(word) == int(np.argmax(scores))


def test_hashes_are_the_same_on_every_machine() -> None:
    """What was found when this was written, of both."""
    for name, digest in (("md5", "bbe7827e7703e0d1"), ("lsh", "a237619ef5ccff4e")):
        found = hashes_of(dictionary(*WORDS), name)
        told = found.bits().tobytes() + str(found.rows().tolist()).encode()
        assert hashlib.sha256(told).hexdigest()[:16] == digest


def test_hashes_are_the_same_in_every_process() -> None:
    """Python's own differ from process to process; this one loads the file alone, and not torch."""
    program = (
        "import runpy, sys; found = runpy.run_path(sys.argv[1])\n"
        f"for word in {WORDS!r}:\n"
        "    for name in found['HASHES'].values(): print(name.bits(word).hex(), name.row(word))"
    )
    expected = [f"{h.bits(word).hex()} {h.row(word)}" for word in WORDS for h in HASHES.values()]
    assert hashes.__file__
    done = subprocess.run(
        [PYTHON, "-c", program, hashes.__file__],
        env={"PYTHONHASHSEED": "1", "PYTHONUTF8": "1"},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.split("\n")[:-1] == expected


def test_a_word_is_hashed_once(monkeypatch: pytest.MonkeyPatch) -> None:
    first = hashes_of(dictionary("onlyhere"), "lsh").bits()
    monkeypatch.setattr("fairseq_mhe.embeddings.hashes.hmac", None)
    monkeypatch.setattr("fairseq_mhe.embeddings.hashes.np.random", None)
    assert np.array_equal(hashes_of(dictionary("onlyhere"), "lsh").bits(), first)


def test_collisions_are_as_many_as_chance_has_them() -> None:
    """20,000 words in 50,260 rows by md5: about n - R (1 - (1 - 1/R)^n); no two have one digest."""
    words = [f"word{number}" for number in range(20_000)]
    found = hashes_of(dictionary(*words), "md5")
    collisions = len(words) - len(set(found.rows()[4:].tolist()))
    expected = len(words) - ROWS * (1 - math.exp(len(words) * math.log1p(-1 / ROWS)))
    assert abs(collisions - expected) < 200  # about four standard deviations
    assert collisions == 3476
    assert len(np.unique(found.bits()[4:], axis=0)) == len(words)


def test_near_words_have_near_lsh_and_far_md5() -> None:
    near, far = [("walking", "walked"), ("house", "houses")], [("walking", "houses")]

    def distance(name: str, one: str, other: str) -> int:
        bits = hashes_of(dictionary(one, other), name).bits()[4:]
        return int((bits[0] ^ bits[1]).sum())

    for pair in near:
        assert distance("lsh", *pair) < 50 < distance("md5", *pair)
    for pair in far:
        assert distance("lsh", *pair) > 50


def test_special_symbols_have_no_hash() -> None:
    for name in HASHES:
        found = hashes_of(dictionary("a", MASK), name)
        assert found.symbols.tolist() == [0, 1, 2, 3, 5, 4]
        assert not found.bits()[[0, 1, 2, 3, 5]].any()


def test_an_unknown_hash_is_refused() -> None:
    with pytest.raises(ValueError, match="unknown hash 'sha1'; choose one of: md5, lsh"):
        hash_of("sha1")
