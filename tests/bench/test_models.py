"""What is compared is what fairseq-train would build, of one size."""

from __future__ import annotations

import pytest
import torch
from fairseq.models.transformer import TransformerModel
from fairseq.modules import MultiheadAttention

from fairseq_mhe.bench import models
from fairseq_mhe.models.architectures import ROWS, SMALL_ROWS
from fairseq_mhe.models.counting import total_parameters
from tests.bench.conftest import VOCABULARY, make_settings

SETTINGS = make_settings()


def build(variant: str, row: str = "tiny"):
    cfg = models.configuration(variant, make_settings(row), "float32")
    with torch.device("meta" if row != "tiny" else "cpu"):
        return models.build(cfg, VOCABULARY)[1]


def test_stock_is_fairseqs_own_transformer_with_biases() -> None:
    model = build("stock")
    assert type(model) is TransformerModel
    for layer in model.decoder.layers:
        assert type(layer.self_attn) is type(layer.encoder_attn) is MultiheadAttention
        assert layer.self_attn.q_proj.bias is not None
    assert model.decoder.output_projection.weight is model.encoder.embed_tokens.weight


# Rows named after multi30k are that row with other numbers.
@pytest.mark.parametrize("row", [*ROWS, *(row for row in SMALL_ROWS if "30k_" not in row)])
@pytest.mark.usefixtures("unconverted")
def test_stock_and_mha_have_the_same_sizes_in_every_row(row: str) -> None:
    """They differ by the four biases of every attention sublayer alone."""
    stock, mha, sizes = build("stock", row), build("mha", row), {**ROWS, **SMALL_ROWS}[row]
    biases = 3 * sizes.layers * 4 * sizes.embed_dim
    assert total_parameters(stock) - total_parameters(mha) == biases
    assert sizes.dropout in [module.p for module in stock.modules() if hasattr(module, "p")]
    stock_layer, mha_layer = stock.encoder.layers[0], mha.encoder.layers[0]
    assert stock_layer.self_attn.num_heads == mha_layer.self_attn.num_heads
    assert stock_layer.normalize_before == mha_layer.normalize_before


@pytest.mark.parametrize("dtype", ["bf16", "fp16"])
def test_half_precision_asks_for_no_tpu_and_works_without_gpu(variant: str, dtype: str) -> None:
    cfg = models.configuration(variant, SETTINGS, dtype)
    assert not cfg.common.tpu
    ours = "_by_rows" if dtype == "bf16" and variant != "stock" else ""
    assert cfg.criterion._name == f"label_smoothed_cross_entropy{ours}"
    assert getattr(cfg.common, dtype)
    if dtype == "fp16":
        assert cfg.common.fp16_no_flatten_grads
