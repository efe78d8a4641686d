"""Hashed embeddings: their equations, gradients and sizes; unseen words; what is refused."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

from fairseq_mhe.embeddings import HASHED, HASHES, base, build_hashed, check_embedding, hashes_of
from fairseq_mhe.embeddings.hashes import MASK
from tests.embeddings.equations import EQUATIONS
from tests.embeddings.test_hashes import dictionary

WIDTH = 8
WORDS = ("hello", "world", "hello again")
#: Exactly, at C = 768; beside them six vectors of special symbols where the table has no rows.
COUNTS = {"hash_emb": 38_603_520, "hash_pool": 797_184, "hash_add": 196_608, "hash_proj": 98_304}


@pytest.fixture(params=sorted(HASHED))
def kind(request: pytest.FixtureRequest) -> str:
    return request.param


@pytest.fixture(params=sorted(HASHES))
def name(request: pytest.FixtureRequest) -> str:
    return request.param


def make(kind: str, name: str = "md5", *words: str, **options: Any) -> nn.Module:
    torch.manual_seed(1)
    module = build_hashed(kind, name, dictionary(*(words or WORDS), MASK), WIDTH, **options)
    return module.eval()


def expected(module: nn.Module, kind: str, name: str, word: str) -> torch.Tensor:
    if kind == "hash_emb":
        return module.table.weight[5 + HASHES[name].row(word)]
    value = int.from_bytes(HASHES[name].bits(word), "big")
    return EQUATIONS[kind](module, value) + module.special[5]


def test_words_are_the_equation_and_so_are_gradients(kind: str, name: str) -> None:
    module = make(kind, name, std=0.5)
    tokens = torch.tensor([[4, 5], [6, 4]])
    weights = torch.randn(2, 2, WIDTH)
    found = module(tokens)
    plain = torch.stack(
        [
            torch.stack([expected(module, kind, name, WORDS[token - 4]) for token in row])
            for row in tokens.tolist()
        ]
    )
    torch.testing.assert_close(found, plain, rtol=0, atol=1e-5)
    parameters = list(module.parameters())
    ours, theirs = (
        torch.autograd.grad((x * weights).sum(), parameters, retain_graph=True, allow_unused=True)
        for x in (found, plain)
    )
    for one, other in zip(ours, theirs, strict=True):
        torch.testing.assert_close(one, other, rtol=0, atol=1e-5)
        assert one.abs().sum() > 0


def test_a_table_of_all_is_made_in_parts(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """hash_pool needs 26 times a table's room on the way."""
    monkeypatch.setattr(base, "_PART", 3)
    module, longest = make(kind, dropout=0.5).train(), []
    module.register_forward_pre_hook(lambda _, given: longest.append(len(given[0])))
    whole = module.of_all()
    assert max(longest) == 3
    plain = module.eval()(torch.arange(len(module.symbols)))
    # Not equal: a product of 3 rows may be summed in another order than one of 8.
    torch.testing.assert_close(whole, plain, rtol=0, atol=1e-7)
    assert not whole.requires_grad


def test_special_symbols_are_vectors_of_their_own(kind: str) -> None:
    module = make(kind)
    found = module(torch.tensor([[0, 1, 2, 3, 7]]))[0]  # 7 is <mask>
    own = module.table.weight[:5] if kind == "hash_emb" else module.special[:5]
    assert torch.equal(found, own)
    assert not found[1].any()  # padding


@pytest.mark.parametrize("width", [768, 512])
def test_counts_are_exact(kind: str, width: int) -> None:
    with torch.device("meta"):
        module = build_hashed(kind, "md5", dictionary("a"), width)
    own = {n: p.numel() for n, p in module.named_parameters() if n != "special"}
    assert sum(own.values()) * 768 == COUNTS[kind] * width
    if kind != "hash_emb":
        assert module.special.numel() == 6 * width
        if kind == "hash_proj" and width == 768:  # the abstract's 99.1 thousand
            assert sum(own.values()) + width == 99_072


def test_a_word_never_seen_has_an_embedding(kind: str, name: str) -> None:
    """A checkpoint holds no words: the embedding takes a dictionary of others, strictly."""
    trained, other = make(kind, name), make(kind, name, "unseen", "hello")
    for parameter in trained.parameters():
        nn.init.normal_(parameter)
    other.load_state_dict(trained.state_dict())
    unseen, hello, unknown = other(torch.tensor([[4, 5, 3]]))[0]
    torch.testing.assert_close(unseen, expected(trained, kind, name, "unseen"), rtol=0, atol=1e-5)
    torch.testing.assert_close(hello, trained(torch.tensor([[4]]))[0, 0], rtol=0, atol=1e-6)
    assert (unseen - unknown).abs().max() > 0.1
    trained.know(hashes_of(dictionary("unseen"), name))
    torch.testing.assert_close(trained(torch.tensor([4]))[0], unseen, rtol=0, atol=1e-6)


def test_dropout_is_in_training_only() -> None:
    tokens = torch.tensor([[4, 5]])
    for kind, drops in (("hash_pool", True), ("hash_add", True), ("hash_proj", False)):
        module = make(kind, dropout=0.5)
        assert torch.equal(module(tokens), module(tokens))
        module.train()
        assert torch.equal(module(tokens), module(tokens)) is not drops


def test_words_of_one_row_are_one_word() -> None:
    """hash_emb's price; the others tell them apart."""
    one, other = _colliding()
    for kind in HASHED:
        first, second = make(kind, "md5", one, other)(torch.tensor([4, 5]))
        assert torch.equal(first, second) is (kind == "hash_emb")


def _colliding() -> tuple[str, str]:
    seen: dict[int, str] = {}
    for number in range(10_000):
        row = HASHES["md5"].row(f"w{number}")
        if row in seen:
            return seen[row], f"w{number}"
        seen[row] = f"w{number}"
    raise AssertionError("no collision")


@pytest.mark.parametrize("half", [torch.bfloat16, torch.float16])
def test_half_precision_works(kind: str, half: torch.dtype) -> None:
    tokens = torch.tensor([[0, 4, 5]])
    whole, rounded = make(kind), make(kind).to(half)
    found = rounded(tokens)
    torch.testing.assert_close(found.float(), whole(tokens), rtol=0.05, atol=0.01)
    found.sum().backward()
    assert all(p.grad.isfinite().all() for p in rounded.parameters() if p.grad is not None)


@pytest.mark.parametrize(
    ("kind", "name", "told"),
    [
        ("hash", None, "unknown embedding 'hash'; choose one of: table, hash_emb, hash_pool, "),
        ("hash_add", "sha1", "unknown hash 'sha1'; choose one of: md5, lsh"),
        ("table", "lsh", "--hash lsh has no effect on --embedding table: leave it out, or "),
    ],
)
def test_what_is_none_is_refused(kind: str, name: str | None, told: str) -> None:
    with pytest.raises(ValueError, match=told):
        check_embedding(kind, name)
