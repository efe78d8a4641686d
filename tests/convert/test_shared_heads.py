"""CTranslate2's multi-query layout holds what equal heads share, and no more is taken for equal."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from ctranslate2.specs import attention_spec

from fairseq_mhe.convert.shared_heads import with_shared_heads

HEADS, WIDTH, C = 4, 2, 8


def full(groups: int, self_attention: bool) -> Any:
    """4 heads whose keys and value weights are equal within ``groups`` groups; biases differ."""
    random = np.random.default_rng(1)

    def rows(count: int) -> Any:
        return np.repeat(random.normal(size=(count, WIDTH, C)), HEADS // count, axis=0).reshape(
            -1, C
        )

    query, key, value = rows(HEADS), rows(groups), rows(groups)
    key_bias = np.repeat(random.normal(size=(groups, WIDTH)), HEADS // groups, axis=0).reshape(
        -1
    )
    query_bias, value_bias, output_bias = random.normal(size=(3, C))
    spec = attention_spec.MultiHeadAttentionSpec(self_attention=self_attention)
    parts = [(query, query_bias), (key, key_bias), (value, value_bias)]
    joined = [parts] if self_attention else [parts[:1], parts[1:]]
    for linear, found in zip(spec.linear, [*joined, [(rows(HEADS), output_bias)]], strict=True):
        linear.weight = np.concatenate([weight for weight, _ in found]).astype(np.float32)
        linear.bias = np.concatenate([bias for _, bias in found]).astype(np.float32)
    return spec


def attend(spec: Any, kept: int, x: Any) -> Any:
    """(T, C) -> (T, C): what CTranslate2 computes with ``kept`` key and value heads."""
    rows = [
        x @ np.asarray(linear.weight).T + np.asarray(linear.bias) for linear in spec.linear[:-1]
    ]
    query, key, value = np.split(np.concatenate(rows, axis=1), [C, C + kept * WIDTH], axis=1)
    heads = []
    for i in range(HEADS):
        q = query[:, i * WIDTH : (i + 1) * WIDTH]
        j = i // (HEADS // kept)
        k, v = (part[:, j * WIDTH : (j + 1) * WIDTH] for part in (key, value))
        scores = np.exp(q @ k.T)
        heads.append(scores / scores.sum(axis=1, keepdims=True) @ v)
    output = spec.linear[-1]
    return np.concatenate(heads, axis=1) @ np.asarray(output.weight).T + np.asarray(output.bias)


@pytest.mark.parametrize("self_attention", [True, False])
@pytest.mark.parametrize("groups", [1, 2, 4])
def test_equal_heads_are_kept_once_and_the_output_is_the_same(
    groups: int, self_attention: bool
) -> None:
    before = full(groups, self_attention)
    after = with_shared_heads(before, HEADS)
    assert int(getattr(after, "num_heads_kv", HEADS)) == groups
    assert (
        sum(np.asarray(linear.weight).shape[0] for linear in after.linear[:-1])
        == C + 2 * groups * WIDTH
    )
    x = np.random.default_rng(2).normal(size=(5, C)).astype(np.float32)
    np.testing.assert_allclose(
        attend(after, groups, x), attend(before, HEADS, x), rtol=1e-4, atol=1e-4
    )


def test_the_decoders_self_attention_caches_one_head_where_there_is_one() -> None:
    assert with_shared_heads(full(1, True), HEADS, cached=True).multi_query
    for spec in (
        with_shared_heads(full(2, True), HEADS, cached=True),
        with_shared_heads(full(1, True), HEADS),
    ):
        assert not getattr(spec, "multi_query", False)


def test_what_shares_nothing_stays_as_ctranslate2_made_it() -> None:
    for groups, heads in ((HEADS, HEADS), (1, 1)):
        before = full(groups, True)
        assert with_shared_heads(before, heads, cached=True) is before


def test_heads_that_differ_in_one_number_are_not_shared() -> None:
    spec = full(1, True)
    spec.linear[0].weight[C + 3, 0] += 1e-3  # a row of the second head's key
    assert (
        sum(
            np.asarray(linear.weight).shape[0]
            for linear in with_shared_heads(spec, HEADS).linear[:-1]
        )
        == 3 * C
    )
