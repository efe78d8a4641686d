"""Models are those that fairseq-train builds, of equal sizes; batches are like its own."""

from pathlib import Path

import pytest
import torch
from fairseq.models.transformer import TransformerModel

from fairseq_mhe.attention import KINDS
from fairseq_mhe.bench import models
from fairseq_mhe.bench.training import TrainingBenchmark
from fairseq_mhe.bench.variants import Variant
from fairseq_mhe.models.architectures import ROWS
from fairseq_mhe.models.counting import total_parameters
from tests.bench.conftest import STOCK, small


def build(variant: Variant, row: str = "tiny"):
    with torch.device("meta" if row != "tiny" else "cpu"):
        return models.build(variant, small(TrainingBenchmark, row=row), "float32")[-1]


def kind(name: str, precision: str = "") -> Variant:
    return Variant(name, name, precision)


@pytest.mark.parametrize("row", ["tiny", "iwslt", "big"])
def test_stock_is_fairseqs_own_transformer_of_the_same_sizes(row: str) -> None:
    """It differs from mha only by the four biases of each attention sublayer."""
    stock, mha, sizes = build(STOCK, row), build(kind("mha"), row), ROWS[row]
    assert type(stock) is TransformerModel
    biases = 3 * sizes.layers * 4 * sizes.embed_dim
    assert total_parameters(stock) - total_parameters(mha) == biases
    assert stock.decoder.output_projection.weight is stock.encoder.embed_tokens.weight
    for model in (stock, mha):
        layer = model.encoder.layers[0]
        assert layer.self_attn.num_heads == sizes.heads
        assert layer.normalize_before == sizes.normalize_before
        assert model.encoder.dropout_module.p == sizes.dropout


def test_a_worker_imports_the_users_kinds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lines = "from fairseq_mhe.attention import KINDS\nKINDS['mine'] = KINDS['mha']\n"
    (tmp_path / "__init__.py").write_text(lines)
    monkeypatch.setenv("FAIRSEQ_MHE_USER_DIR", str(tmp_path))
    monkeypatch.setitem(KINDS, "mine", None)  # undone afterwards
    assert total_parameters(build(kind("mine"))) == total_parameters(build(kind("mha")))
