"""docs/embeddings.md says what is true: every kind is there, and its numbers are counted."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from fairseq.data import Dictionary

from fairseq_mhe.embeddings import EMBEDDINGS, HASHED, HASHES, TABLE, build_hashed, hashes_of

PAGE = (Path(__file__).parents[2] / "docs" / "embeddings.md").read_text(encoding="utf-8")
#: kind -> parameters, output, count at C = 768
ROWS = {
    cells[0].strip("`"): cells[1:]
    for line in PAGE.split("\n")
    if (cells := [cell.strip() for cell in line.strip("|").split("|")])[0].strip("`") in EMBEDDINGS
    and len(cells) == 4
}


def value(formula: str, **sizes: int) -> int:
    assert re.fullmatch(r"[CV0-9·+ ]+", formula)
    return eval(formula.replace("·", "*"), {"__builtins__": {}}, sizes)  # noqa: S307 - checked


@pytest.mark.parametrize("kind", EMBEDDINGS)
def test_formulas_are_what_is_built(kind: str) -> None:
    formula, output, count = ROWS[kind]
    assert value(formula, C=768, V=32_768) == int(count.replace(",", ""))
    if kind == TABLE:
        return
    module = build_hashed(kind, None, Dictionary(), 4)
    own = sum(p.numel() for name, p in module.named_parameters() if name != "special")
    assert value(formula, C=4, V=0) == own
    assert (output != "none") is HASHED[kind].has_rows


@pytest.mark.parametrize("name", [*HASHED, *HASHES])
def test_every_kind_has_a_section(name: str) -> None:
    (heading,) = [line for line in PAGE.split("\n") if line.startswith(f"### `{name}`")]
    section = PAGE.split(heading)[1].split("\n### ")[0].split("\n## ")[0]
    assert "$$" in section or name == "md5"
    assert re.search(r"20\d\d|HMAC-MD5", section), f"{name} has no source"


def test_numbers_in_the_text() -> None:
    words = Dictionary()
    for word in ("hello", "world", "the", "walking", "walked"):
        words.add_symbol(word)
    md5, lsh = (hashes_of(words, name) for name in ("md5", "lsh"))
    assert md5.rows()[4:7].tolist() == [46797, 25238, 20664]
    assert '("hello" has row 46,797' in PAGE
    assert '"world" 25,238, "the" 20,664' in PAGE
    differ = int((lsh.bits()[7] ^ lsh.bits()[8]).sum())
    assert f'of "walking" and "walked" {differ} bits of 128 differ, and they have one row' in PAGE
    assert lsh.rows()[7] == lsh.rows()[8]
    assert "of 20,000 words 3,476 share" in PAGE  # tests/embeddings/test_hashes.py counts them


@pytest.mark.parametrize("std", [0.02, 512**-0.5])
@pytest.mark.parametrize("kind", HASHED)
def test_initial_values(kind: str, std: float) -> None:
    """Normal, cut off at twice the spread but in hash_emb; A of hash_pool has its own spread."""
    module = build_hashed(kind, None, Dictionary(), 512, std=std)
    for name, parameter in module.named_parameters():
        own = 0.02 if name == "mixing" else std
        assert (float(parameter.detach().abs().max()) > 2.001 * own) is (kind == "hash_emb"), name
        assert float(parameter.detach().std()) == pytest.approx(own, rel=0.25), name
    told = PAGE.replace("\n", " ")
    assert "cut off at twice that, but for `hash_emb`'s, which are not cut off;" in told
    assert (
        "in translation $N(0, C^{-1/2})$, as fairseq's table, but for $A$ of `hash_pool`." in told
    )
