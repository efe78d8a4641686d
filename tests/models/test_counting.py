"""The counts of ``cost``: the cache of a beam search, the multiply-adds of a forward pass."""

from typing import Any
from unittest.mock import Mock

import pytest
import torch
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

from fairseq_mhe.attention import KINDS
from fairseq_mhe.attention.cache import KeyValueCache
from fairseq_mhe.models.counting import Cost, cache_bytes, costs
from tests.fixtures.language import LM, ROBERTA, make_language_model
from tests.fixtures.models import make_dictionary, make_model, search

SENTENCES, SOURCE, BEAM = 3, 7, 4
TARGET = 13  # tokens of the longest hypothesis of `search`, with the end of the sentence
MIXED = {"attention": "mha", "encoder_attention": "sha", "cross_attention": "skv"}
#: Every kind, then options that change the cache: biases make collaborative's keys wider.
MODELS = [
    *({"attention": kind} for kind in KINDS),
    {"attention": "collaborative", "attention_bias": True, "collaborative_dim": 5},
    {"attention": "gqa", "attention_kv_heads": 4},
    {"attention": "mhe_mul", "attention_head_dim": 3},
    {**MIXED, "encoder_embed_dim": 24, "share_all_embeddings": False},
]


def sources() -> dict[str, Tensor]:  # without padding
    words = torch.randint(4, len(make_dictionary()), (SENTENCES, SOURCE))
    return {"src_tokens": words, "src_lengths": torch.full((SENTENCES,), SOURCE)}


def state_after(model: nn.Module) -> dict[str, Any]:
    """fairseq's state after the last step of a beam search whose sentences all end together."""
    model.decoder.forward = spy = Mock(wraps=model.decoder.forward)
    search([model], sources(), beam_size=BEAM, min_len=TARGET - 1)
    return spy.call_args.kwargs["incremental_state"]


@pytest.mark.parametrize("options", MODELS, ids=str)
def test_cache_bytes_equal_those_of_a_beam_search(options: dict) -> None:
    model = make_model(**options)
    computed = cache_bytes(model)
    caches = [x for x in state_after(model).values() if isinstance(x, KeyValueCache)]
    assert len(caches) == 4
    held = 0
    for cache in caches:
        tensors = cache.key, cache.value  # a storage that a sublayer uses twice counts once
        held += sum({x.untyped_storage().data_ptr(): x.nbytes for x in tensors}.values())
    assert held == SENTENCES * computed.per_sentence(SOURCE, TARGET, BEAM)


#: A decoding step filters queries, but a forward pass filters keys, which takes no multiply-adds.
FILTERED = {"mhe_conv", "mqa_conv", "mha_conv"}


@pytest.mark.parametrize(
    "options", [options for options in MODELS if options["attention"] not in FILTERED], ids=str
)
def test_costs_equal_the_multiply_adds_of_a_forward_pass(options: dict) -> None:
    """Each target token attends to all of them, because the kernel computes masked scores, too."""
    model = make_model(**options)
    inputs = {**sources(), "prev_output_tokens": torch.full((SENTENCES, TARGET), 5)}
    total = sum(costs(model, SOURCE, past=TARGET).values(), Cost())
    expected = SENTENCES * (SOURCE * total.source + TARGET * total.target)
    twice = {name: torch.cat((x, x)) for name, x in inputs.items()}
    # The difference leaves out what a call computes from weights alone.
    assert multiply_adds(model, **twice) - multiply_adds(model, **inputs) == expected


def multiply_adds(model: nn.Module, **inputs: Tensor) -> int:
    if hasattr(model, "decoder"):
        model.decoder.need_attn = False
    with torch.no_grad(), sdpa_kernel(SDPBackend.MATH), FlopCounterMode(display=False) as counter:
        model(**inputs)
    return counter.get_total_flops() // 2


@pytest.mark.parametrize("arch", [ROBERTA[0], LM[0]])
def test_costs_of_a_language_model_contain_its_output_layer(arch: str) -> None:
    model, tokens = make_language_model(arch), sources()["src_tokens"]
    total = sum(costs(model, SOURCE, past=SOURCE).values(), Cost())
    assert multiply_adds(model, src_tokens=tokens) == tokens.numel() * (total.source + total.target)
