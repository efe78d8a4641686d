"""Small models over a small dictionary, and batches for them."""

from __future__ import annotations

import argparse
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from fairseq.data import Dictionary
from fairseq.models import build_model
from fairseq.sequence_generator import SequenceGenerator
from torch import Tensor, nn

SIZES = {"encoder_embed_dim": 16, "encoder_ffn_embed_dim": 32, "encoder_layers": 2, "encoder_attention_heads": 4}


def make_dictionary(words: int = 40) -> Dictionary:
    """A dictionary of ``words`` words and fairseq's four special symbols."""
    dictionary = Dictionary()
    for index in range(words):
        dictionary.add_symbol(f"w{index}")
    return dictionary


def make_model(arch: str = "transformer_mhe_base", seed: int = 1, **options: Any) -> nn.Module:
    """A model of two small layers each side, in evaluation mode."""
    torch.manual_seed(seed)
    dictionary = make_dictionary()
    sizes = {**SIZES, **{name.replace("encoder", "decoder"): value for name, value in SIZES.items()}}
    args = argparse.Namespace(arch=arch, **{**sizes, "share_all_embeddings": True, **options})
    task = SimpleNamespace(source_dictionary=dictionary, target_dictionary=dictionary)
    return build_model(args, task).eval()


def make_batch(sentences: int = 5, longest: int = 7, seed: int = 0) -> dict[str, Any]:
    """Sentences of falling length: src_tokens (B, S), padded on the left as fairseq does; prev_output_tokens (B, T)."""
    generator = torch.Generator().manual_seed(seed)
    dictionary = make_dictionary()
    src = torch.full((sentences, longest), dictionary.pad())
    tgt = torch.full((sentences, longest), dictionary.pad())
    for row in range(sentences):
        length = max(2, longest - row)
        words = torch.randint(4, len(dictionary), (length - 1,), generator=generator)
        src[row, longest - length :] = torch.cat((words, torch.tensor([dictionary.eos()])))
        tgt[row, :length] = torch.cat((torch.tensor([dictionary.eos()]), words.flip(0)))
    lengths = src.ne(dictionary.pad()).sum(1)
    return {"src_tokens": src, "src_lengths": lengths, "prev_output_tokens": tgt}


def search(models: list[nn.Module], batch: dict[str, Tensor], **options: Any) -> list[list[dict[str, Tensor]]]:
    """fairseq's beam search over a batch."""
    generator = SequenceGenerator(models, make_dictionary(), max_len_b=12, **{"beam_size": 4, **options})
    inputs = {k: batch[k] for k in ("src_tokens", "src_lengths")}
    return generator.generate(models, {"net_input": inputs, "id": torch.arange(len(batch["src_tokens"]))})


@pytest.fixture(params=["mha", "mhe_mul", "mhe_add"])
def attention(request: pytest.FixtureRequest) -> str:
    """Kinds of attention to try in whole models."""
    return request.param
