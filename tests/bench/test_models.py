"""Models are those that fairseq-train builds, of equal sizes; batches are like its own."""

from pathlib import Path

import numpy as np
import pytest
import torch
from fairseq.models.transformer import TransformerModel

from fairseq_mhe.attention import KINDS
from fairseq_mhe.bench import models
from fairseq_mhe.bench.models import random_batches, real_batches
from fairseq_mhe.bench.training import TrainingBenchmark
from fairseq_mhe.bench.variants import Variant
from fairseq_mhe.common.errors import UserError
from fairseq_mhe.models.architectures import ROWS
from fairseq_mhe.models.counting import total_parameters
from fairseq_mhe.models.tasks import make_dictionary
from tests.bench.conftest import OURS, STOCK, VOCABULARY, small
from tests.fixtures.small_runs import SMALL

DICTIONARY = make_dictionary(VOCABULARY)


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


def test_a_variant_sets_the_precision_of_generation() -> None:
    precisions = [build(kind("mha", given)).generation_precision for given in ("", "int8", "bf16")]
    assert precisions == ["float32", "int8", "bf16"]


def test_a_worker_imports_the_users_kinds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lines = "from fairseq_mhe.attention import KINDS\nKINDS['mine'] = KINDS['mha']\n"
    (tmp_path / "__init__.py").write_text(lines)
    monkeypatch.setenv("FAIRSEQ_MHE_USER_DIR", str(tmp_path))
    monkeypatch.setitem(KINDS, "mine", None)  # undone afterwards
    assert total_parameters(build(kind("mine"))) == total_parameters(build(kind("mha")))


@pytest.mark.parametrize("variant", [STOCK, OURS], ids=lambda one: one.name)
def test_only_our_models_have_our_loss_and_optimizer(variant: Variant) -> None:
    cfg = models.configuration(variant, small(TrainingBenchmark), "bf16")
    ours = bool(variant.kind)
    assert cfg.criterion._name.endswith("_by_rows") == ours
    assert cfg.optimizer._name == ("adam_fused" if ours else "adam")


def test_random_batches_fill_max_tokens_with_sentences_of_realistic_lengths() -> None:
    batches = random_batches(DICTIONARY, 1024, 200, seed=3)
    sizes = []
    for batch in batches:
        source, target = batch["net_input"]["src_tokens"], batch["target"]
        sizes.append(max(source.numel(), target.numel()))
        assert batch["ntokens"] == target.ne(DICTIONARY.pad()).sum()
    assert max(sizes) <= 1024
    assert np.median(sizes) > 0.75 * 1024
    lengths = np.concatenate([batch["net_input"]["src_lengths"].numpy() for batch in batches])
    assert 22 <= np.median(lengths) <= 26
    assert np.log(lengths).std() == pytest.approx(0.68, abs=0.1)


def test_real_batches_come_from_the_data_folder() -> None:
    batches = real_batches(SMALL / "data", 200, 512, 100)
    shapes = {tuple(batch["target"].shape) for batch in batches}
    assert len(shapes) > 3
    assert sum(batch["nsentences"] for batch in batches) == 150
    assert max(rows * columns for rows, columns in shapes) <= 512
    short = real_batches(SMALL / "data", 10_000, 16, 1000)
    assert 0 < sum(batch["nsentences"] for batch in short) < 150, "longer pairs are left out"
    with pytest.raises(UserError, match="--vocab-size"):
        real_batches(SMALL / "data", VOCABULARY, 512, 1)
