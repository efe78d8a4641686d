"""The floor, against multiply-adds and bytes written out by hand for MHA and MHE."""

from __future__ import annotations

import pytest

from fairseq_mhe.bench.run import BENCHMARKS
from tests.bench.conftest import make_settings

# The base row.
WIDTH, FFN, HEADS, HEAD, LAYERS, VOCABULARY = 512, 2048, 8, 64, 6, 1000
FEED_FORWARD = 2 * WIDTH * FFN
PAIR = 2 * WIDTH  # scores and weighted sum of one query and one key, all heads
#: Multiply-adds of one query's, and of one key's, projections.
QUERY = {"mha": 2 * WIDTH**2, "mhe_mul": WIDTH * HEAD + WIDTH**2}
KEY = {"mha": 2 * WIDTH**2, "mhe_mul": 2 * WIDTH * HEAD}
KEPT = {"mha": 2 * WIDTH, "mhe_mul": 2 * HEAD}
EMBEDDINGS = {"mha": 0, "mhe_mul": 3 * HEADS * HEAD}


def limits(bench: str, kind: str, cell, facts=()) -> dict[str, float]:
    settings = make_settings("base", vocabulary=VOCABULARY)
    return BENCHMARKS[bench].limits(kind, settings, cell, dict(facts))


@pytest.mark.parametrize("kind", ["mha", "mhe_mul"])
def test_attention(kind: str) -> None:
    def at(place: str):
        cell = {"place": place, "length": 10, "batch": 3, "dtype": "float32"}
        return limits("attention", kind, cell)

    projections, weights = (QUERY[kind] + KEY[kind], QUERY[kind] + KEY[kind] + EMBEDDINGS[kind])
    assert at("encoder")["multiply_adds"] == 3 * 3 * (10 * projections + 100 * PAIR)
    assert at("decoder")["multiply_adds"] == 3 * 3 * (10 * projections + 55 * PAIR)
    assert at("cross") == at("cross_last")
    assert at("cross")["multiply_adds"] == at("encoder")["multiply_adds"]
    assert at("encoder")["bytes"] == 4 * (weights + 30 * (WIDTH + KEPT[kind]))
    assert at("cross")["bytes"] == 4 * (weights + 30 * (2 * WIDTH + KEPT[kind]))
    # One step of decoding: the query's work, half of all pairs on average, and what is cached by
    # then.
    assert at("decoder_steps")["multiply_adds"] == 3 * (projections + 5.5 * PAIR)
    assert at("decoder_steps")["bytes"] == 4 * (weights + 3 * 5.5 * KEPT[kind])
    assert at("cross_steps")["multiply_adds"] == 3 * (projections + 10 * PAIR)
    assert at("cross_steps")["bytes"] == 4 * (weights - KEY[kind] + 3 * 10 * KEPT[kind])


@pytest.mark.parametrize(("dtype", "width"), [("float32", 4), ("bf16", 2), ("fp16", 2)])
@pytest.mark.parametrize("kind", ["mha", "mhe_mul"])
def test_generation(kind: str, dtype: str, width: int) -> None:
    cell = {"beam": 5, "length": 21, "source_length": 30, "batch": 4, "dtype": dtype}
    floor = limits("generation", kind, cell)
    projections = QUERY[kind] + KEY[kind]
    encoder = (
        4 * 30 * LAYERS * (projections + 30 * PAIR + FEED_FORWARD + KEY[kind])
    )  # and cross-attention's keys
    step = (
        LAYERS * (projections + 11 * PAIR + QUERY[kind] + 30 * PAIR + FEED_FORWARD)
        + WIDTH * VOCABULARY
    )
    assert floor["multiply_adds"] == encoder + 20 * 21 * step
    norms_and_biases = {
        "encoder": 2 * 2 * WIDTH + FFN + WIDTH,
        "decoder": 3 * 2 * WIDTH + FFN + WIDTH,
    }
    encoder_weights = LAYERS * (
        projections + EMBEDDINGS[kind] + FEED_FORWARD + norms_and_biases["encoder"]
    )
    decoder_weights = (
        LAYERS
        * (
            projections
            + QUERY[kind]
            + 2 * EMBEDDINGS[kind]
            + FEED_FORWARD
            + norms_and_biases["decoder"]
        )
        + WIDTH * VOCABULARY
    )
    cache = LAYERS * KEPT[kind] * (4 * 30 + 20 * 11)
    once = encoder_weights + LAYERS * KEY[kind]
    assert floor["bytes"] == width * (once + 21 * (decoder_weights + cache))


def test_training() -> None:
    cell = {"max_tokens": 64, "dtype": "float32"}
    facts = {"units": 110, "source_tokens": 100, "sentences": 10, "updates": 2}
    floor = limits("training", "mhe_mul", cell, facts)
    query, key = QUERY["mhe_mul"], KEY["mhe_mul"]
    source = LAYERS * (query + key + 10 * PAIR + FEED_FORWARD + key)
    target = (
        LAYERS * (query + key + 6 * PAIR + query + 10 * PAIR + FEED_FORWARD) + WIDTH * VOCABULARY
    )
    assert floor["multiply_adds"] == 3 * (100 * source + 110 * target)
    twice = limits("training", "mhe_mul", cell, {**facts, "updates": 4})
    assert twice["bytes"] == 2 * floor["bytes"]


def test_kinds_that_share_heads_need_less() -> None:
    cell = {"beam": 5, "length": 25, "source_length": 25, "batch": 1, "dtype": "float32"}
    for kind in ("mha", "sha", "mqa", "gqa", "mhe_mul", "mhe_add"):
        floor = limits("generation", kind, cell)
        least = 1 if kind == "mha" else 1.0001
        assert floor["arithmetic_limit"] >= least
        assert floor["traffic_limit"] >= least
