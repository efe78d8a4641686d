"""What ``cost`` states, against the tensors that a beam search holds and the operations that a forward pass makes."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

from fairseq_mhe import cli
from fairseq_mhe.attention import VARIANTS
from fairseq_mhe.models.counting import Cost, attention_work, cache_bytes, costs
from tests.attention.conftest import make_layer
from tests.fixtures.models import make_dictionary, make_model, search

SENTENCES, SOURCE, BEAM = 3, 7, 4
TARGET = 13  # the most that `search` lets a hypothesis have, its end included
KINDS = sorted(VARIANTS)
#: Several sizes that no two kinds share by chance; mixed places; biases, which add to
#: collaborative's keys.
MODELS = [
    *({"attention": kind} for kind in KINDS),
    {"attention": "collaborative", "attention_bias": True, "collaborative_dim": 5},
    {"attention": "gqa", "attention_kv_heads": 4},
    {"attention": "mhe_mul", "attention_head_dim": 3},
    {
        "attention": "mha",
        "encoder_attention": "sha",
        "cross_attention": "skv",
        "encoder_embed_dim": 24,
        "share_all_embeddings": False,
    },
]


def sources() -> dict[str, Tensor]:
    """Sentences of equal length, so that there is no padding."""
    words = torch.randint(
        4, len(make_dictionary()), (SENTENCES, SOURCE), generator=torch.Generator().manual_seed(1)
    )
    return {"src_tokens": words, "src_lengths": torch.full((SENTENCES,), SOURCE)}


def state_after_each_step(model: nn.Module) -> list[dict[str, Any]]:
    """fairseq's incremental state after every step of a beam search in which no sentence ends before the last step."""
    states: list[dict[str, Any]] = []
    decode = model.decoder.forward

    def spy(*args: Any, **kwargs: Any) -> Any:
        out = decode(*args, **kwargs)
        states.append({name: dict(buffer) for name, buffer in kwargs["incremental_state"].items()})
        return out

    model.decoder.forward = spy
    search([model], sources(), beam_size=BEAM, min_len=TARGET - 1)
    return states


def bytes_held(buffers: list[dict[str, Tensor | None]]) -> int:
    """Bytes of the storages behind all keys and values, a storage that serves several once within its sublayer."""
    total = 0
    for buffer in buffers:
        held = [buffer[name].untyped_storage() for name in ("prev_key", "prev_value")]
        total += sum({storage.data_ptr(): storage.nbytes() for storage in held}.values())
    return total


@pytest.mark.parametrize("options", MODELS, ids=str)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
def test_cache_is_what_a_beam_search_holds(options: dict, dtype: torch.dtype) -> None:
    model = make_model(**options).to(dtype)
    stated = cache_bytes(model, torch.finfo(dtype).bits // 8)
    steps = state_after_each_step(model)
    assert len(steps) == TARGET
    for step, state in enumerate(steps, start=1):
        buffers = [buffer for buffer in state.values() if "prev_key" in buffer]
        assert len(buffers) == 4
        assert bytes_held(buffers) == SENTENCES * stated.per_sentence(SOURCE, step, BEAM)


def test_el_shares_the_encoders_output_while_all_sentences_are_searched() -> None:
    """Its cross-attention's keys are the encoder's output itself; each sublayer has a copy once a sentence has left."""
    *_, state = state_after_each_step(make_model(attention="el"))
    cross = [
        buffer["prev_key"] for buffer in state.values() if buffer["prev_key"].size(0) == SENTENCES
    ]
    assert len(cross) == 2
    assert len({key.untyped_storage().data_ptr() for key in cross}) == 1


def flops(run: Callable[[], Any]) -> int:
    with torch.no_grad(), sdpa_kernel(SDPBackend.MATH), FlopCounterMode(display=False) as counter:
        run()
    return counter.get_total_flops()


@pytest.mark.parametrize("options", MODELS, ids=str)
def test_multiply_adds_of_a_forward_pass(options: dict) -> None:
    """Exactly, where every target token attends to all, as the kernel computes a causal mask."""
    model = make_model(**options)
    inputs = {**sources(), "prev_output_tokens": torch.full((SENTENCES, TARGET), 5)}
    total = sum(costs(model, SOURCE, past=TARGET).values(), Cost())
    expected = SENTENCES * (SOURCE * total.source + TARGET * total.target)
    model.make_generation_fast_(need_attn=False)
    assert flops(lambda: model(**inputs)) == 2 * expected


@pytest.mark.parametrize("options", MODELS, ids=str)
def test_multiply_adds_of_decoding_step_by_step(options: dict) -> None:
    """Exactly: each of the cached steps attends to one more target token, (T + 1) / 2 on average."""
    model = make_model(**options)
    inputs = sources()
    previous = torch.full((SENTENCES, TARGET), 5)

    def decode() -> None:
        memory = model.encoder(**inputs)
        state: dict = {}
        for step in range(1, TARGET + 1):
            model.decoder(previous[:, :step], memory, incremental_state=state)

    model.make_generation_fast_(need_attn=False)
    total = sum(costs(model, SOURCE, past=(TARGET + 1) / 2).values(), Cost())
    assert flops(decode) == 2 * SENTENCES * (SOURCE * total.source + TARGET * total.target)


# C, n, d = 24, 4, 6; g = 2 kept heads of gqa, D = 6 of collaborative. Per query, per key, per pair
# of both.
FORMULAS = {
    "mha": (2 * 24 * 24, 2 * 24 * 24, 2 * 24),
    "mhe_mul": (24 * 6 + 24 * 24, 2 * 24 * 6, 2 * 24),
    "mhe_add": (24 * 6 + 24 * 24, 2 * 24 * 6, 2 * 24),
    "sha": (2 * 24 * 6, 2 * 24 * 6, 2 * 6),
    "mqa": (2 * 24 * 24, 2 * 24 * 6, 2 * 24),
    "gqa": (2 * 24 * 24, 2 * 24 * 2 * 6, 2 * 24),
    "skv": (2 * 24 * 24, 24 * 24, 2 * 24),
    "el": (2 * 24 * 24, 0, 2 * 24),
    "collaborative": (24 * 6 + 24 * 24, 24 * 6 + 24 * 24, 4 * 6 + 24),
}


def test_work_of_a_sublayer_is_the_formula(kind: str) -> None:
    work = attention_work(make_layer(kind))
    assert (work.query, work.key, work.pair) == FORMULAS[kind]


@pytest.fixture(params=KINDS)
def kind(request: pytest.FixtureRequest) -> str:
    """Every kind of attention."""
    return request.param


def printed(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    assert cli.main(["cost", *words]) == 0
    return capsys.readouterr().out


def test_json_of_mha_base_by_hand(capsys: pytest.CaptureFixture[str]) -> None:
    """C = 512, feed-forward 2048, vocabulary 1000, 6 + 6 layers; 10 source and 4 target tokens."""
    words = (
        "base",
        "mha",
        "--source",
        "10",
        "--target",
        "4",
        "--beam",
        "3",
        "--vocab-size",
        "1000",
        "--json",
    )
    report = json.loads(printed(capsys, *words))
    square, ffn = 512 * 512, 2 * 512 * 2048
    encoder, keys = 6 * (4 * square + 2 * 512 * 10), 6 * 2 * square
    decoder = 6 * (4 * square + 2 * 512 * 2.5 + 2 * square + 2 * 512 * 10)
    assert report["multiply_adds"] == {
        "attention": {"per_source_token": encoder + keys, "per_target_token": decoder},
        "model": {
            "per_source_token": encoder + keys + 6 * ffn,
            "per_target_token": decoder + 6 * ffn + 512 * 1000,
        },
    }
    per_token = 6 * 2 * 512 * 4
    assert report["cache_bytes"] == {
        "per_source_token": per_token,
        "per_target_token": per_token,
        "per_sentence": 14 * per_token,
        "per_sentence_with_beam": (10 + 3 * 4) * per_token,
    }
    assert report["attention_parameters"] == 18 * 4 * square
    norms_and_biases = 6 * (2048 + 512) * 2 + 6 * 2 * 2 * 512 + 6 * 3 * 2 * 512
    assert report["total_parameters"] == 18 * 4 * square + 12 * ffn + 1000 * 512 + norms_and_biases
    assert report["attention"] == {"encoder": "mha", "decoder": "mha", "cross": "mha"}
    assert all(
        isinstance(number, int)
        for part in report["multiply_adds"].values()
        for number in part.values()
    )


def test_half_precision_halves_the_cache(capsys: pytest.CaptureFixture[str]) -> None:
    whole, half = (
        json.loads(printed(capsys, "tiny", "mqa", "--json", "--dtype", dtype))
        for dtype in ("float32", "float16")
    )
    assert whole["cache_bytes"] == {
        name: 2 * number for name, number in half["cache_bytes"].items()
    }
    assert whole["multiply_adds"] == half["multiply_adds"]


def test_options_reach_the_model(capsys: pytest.CaptureFixture[str]) -> None:
    words = (
        "gqa",
        "--kv-heads",
        "4",
        "--cross-attention",
        "collaborative",
        "--collaborative-dim",
        "8",
        "--json",
    )
    report = json.loads(printed(capsys, "tiny", *words))  # C = 128, n = 4, d = 32, 2 + 2 layers
    assert report["attention"] == {"encoder": "gqa", "decoder": "gqa", "cross": "collaborative"}
    assert report["cache_bytes"]["per_target_token"] == 2 * 2 * 4 * 32 * 4
    assert report["cache_bytes"]["per_source_token"] == 2 * (8 + 4 * 32) * 4


def test_the_table_fits_80_columns_and_says_what_it_counts(
    capsys: pytest.CaptureFixture[str],
) -> None:
    out = printed(capsys, "big", "collaborative")
    assert max(map(len, out.split("\n"))) <= 80
    assert "…" not in out
    cells = [[cell.strip() for cell in line.split("│")[1:-1]] for line in out.split("\n")]
    assert ["encoder: collaborative", "15,753,216", "16,496,640", "0"] in cells
    text = " ".join(out.split())
    assert "projections, scores and weighted sums" in text
    assert "sees 13 target tokens on average" in text
    assert "bytes with a beam of 5." in text


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["huge", "mha"], "unknown row 'huge'; choose one of: base"),
        (["base", "mhe"], "unknown attention 'mhe'; choose one of: mha"),
        (["base", "mha", "--cross-attention", "x"], "unknown attention 'x'"),
        (
            ["base", "mha", "--kv-heads", "2"],
            "--attention-kv-heads has no effect on --attention mha: leave it out",
        ),
        (["base", "gqa", "--kv-heads", "3"], "kv_heads 3 does not divide num_heads 8"),
        (
            ["base", "collaborative", "--collaborative-dim", "0"],
            "collaborative_dim must be positive, not 0",
        ),
        (["base", "mha", "--beam", "0"], "--beam must be 1 or more, not 0"),
        (["base", "mha", "--source", "-1"], "--source must be 1 or more, not -1"),
        (["base", "mha", "--vocab-size", "2"], "a vocabulary of 2 has no words"),
    ],
)
def test_bad_input_ends_in_one_line(
    words: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["cost", *words]) == 2
    out, err = capsys.readouterr()
    assert (out, err.count("\n")) == ("", 1)
    assert message in err
