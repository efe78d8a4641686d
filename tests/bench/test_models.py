"""Models are those that fairseq-train builds, of equal sizes; batches are like its own."""

from argparse import Namespace
from pathlib import Path

import numpy as np
import pytest
import torch
from fairseq.models.transformer import TransformerModel
from fairseq.modules import MultiheadAttention

from fairseq_mhe.attention import KINDS
from fairseq_mhe.bench import models
from fairseq_mhe.bench.models import random_batches, real_batches, translation_batch
from fairseq_mhe.bench.training import TrainingBenchmark
from fairseq_mhe.bench.variants import Variant
from fairseq_mhe.common.errors import UserError
from fairseq_mhe.models.architectures import ROWS
from fairseq_mhe.models.counting import total_parameters
from fairseq_mhe.models.tasks import make_dictionary
from tests.bench.conftest import STOCK, VOCABULARY, small
from tests.fixtures.small_runs import SMALL

SETTINGS = small(TrainingBenchmark)
DICTIONARY = make_dictionary(VOCABULARY)
PAD, EOS = DICTIONARY.pad(), DICTIONARY.eos()


def build(variant: Variant, row: str = "tiny"):
    with torch.device("meta" if row != "tiny" else "cpu"):
        return models.build(variant, small(TrainingBenchmark, row=row), "float32")[-1]


def kind(name: str, precision: str = "") -> Variant:
    return Variant(name, name, precision)


def test_stock_is_fairseqs_own_transformer_with_biases() -> None:
    model = build(STOCK)
    assert type(model) is TransformerModel
    for layer in model.decoder.layers:
        assert type(layer.self_attn) is type(layer.encoder_attn) is MultiheadAttention
        assert layer.self_attn.q_proj.bias is not None
    assert model.decoder.output_projection.weight is model.encoder.embed_tokens.weight


def test_a_variant_sets_the_precision_of_generation() -> None:
    for precision in ("", "int8", "bf16"):
        assert build(kind("mha", precision)).generation_precision == precision or "float32"


def test_a_worker_imports_the_users_kinds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lines = "from fairseq_mhe.attention import KINDS\nKINDS['mine'] = KINDS['mha']\n"
    (tmp_path / "__init__.py").write_text(lines)
    monkeypatch.setenv("FAIRSEQ_MHE_USER_DIR", str(tmp_path))
    monkeypatch.setitem(KINDS, "mine", None)  # undone afterwards
    assert total_parameters(build(kind("mine"))) == total_parameters(build(kind("mha")))


# The rows multi30k_* differ from multi30k in numbers only.
@pytest.mark.parametrize("row", [row for row in ROWS if "30k_" not in row])
def test_stock_and_mha_have_the_same_sizes_in_every_row(
    row: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They differ only by the four biases of each attention sublayer."""
    # Converting a configuration takes half a second, and the model does not need it.
    name = "convert_namespace_to_omegaconf"
    monkeypatch.setattr(models, name, lambda args: Namespace(model=args, task=args, common=args))
    monkeypatch.setattr(models, "configuration_of", models.configuration_of.__wrapped__)
    stock, mha, sizes = build(STOCK, row), build(kind("mha"), row), ROWS[row]
    biases = 3 * sizes.layers * 4 * sizes.embed_dim
    assert total_parameters(stock) - total_parameters(mha) == biases
    assert sizes.dropout in [module.p for module in stock.modules() if hasattr(module, "p")]
    stock_layer, mha_layer = stock.encoder.layers[0], mha.encoder.layers[0]
    assert stock_layer.self_attn.num_heads == mha_layer.self_attn.num_heads
    assert stock_layer.normalize_before == mha_layer.normalize_before


@pytest.mark.parametrize("dtype", ["bf16", "fp16"])
def test_half_precision_on_a_cpu_needs_neither_tpu_nor_gpu(variant: Variant, dtype: str) -> None:
    cfg = models.configuration(variant, SETTINGS, dtype)
    assert not cfg.common.tpu
    ours = "_by_rows" if dtype == "bf16" and variant.kind else ""
    assert cfg.criterion._name == f"label_smoothed_cross_entropy{ours}"
    assert getattr(cfg.common, dtype)
    if dtype == "fp16":
        assert cfg.common.fp16_no_flatten_grads


def test_random_batches_fill_max_tokens_with_sentences_of_realistic_lengths() -> None:
    batches = list(random_batches(DICTIONARY, 1024, 200, seed=3))
    assert len(batches) == 200
    sizes = []
    for batch in batches:
        source, target = batch["net_input"]["src_tokens"], batch["target"]
        sizes.append(max(source.numel(), target.numel()))
        assert batch["ntokens"] == target.ne(PAD).sum()
        assert target[target.ne(PAD)].ge(EOS).all()
    assert max(sizes) <= 1024
    assert np.median(sizes) > 0.75 * 1024
    lengths = np.concatenate([batch["net_input"]["src_lengths"].numpy() for batch in batches])
    assert 22 <= np.median(lengths) <= 26
    assert np.log(lengths).std() == pytest.approx(0.68, abs=0.1)


def test_real_batches_come_from_the_data_folder() -> None:
    batches = list(real_batches(SMALL / "data", 200, 512, 100))
    shapes = {tuple(batch["target"].shape) for batch in batches}
    assert len(shapes) > 3
    assert sum(batch["nsentences"] for batch in batches) == 150
    assert max(rows * columns for rows, columns in shapes) <= 512
    assert [batch["id"].tolist() for batch in real_batches(SMALL / "data", 200, 512, 2)] == [
        batch["id"].tolist() for batch in batches[:2]
    ]
    short = real_batches(SMALL / "data", 10_000, 16, 1000)
    assert 0 < sum(batch["nsentences"] for batch in short) < 150, "longer pairs are left out"
    with pytest.raises(UserError, match=r"has \d+ words: give --vocab-size \d+ or more"):
        real_batches(SMALL / "data", VOCABULARY, 512, 1)
    with pytest.raises(UserError, match="is no data folder"):
        real_batches(Path(__file__).parent, VOCABULARY, 512, 1)


def test_translation_batch_is_padded_on_the_left_and_shortens_by_a_tenth() -> None:
    batch = translation_batch(DICTIONARY, sentences=6, length=20, seed=1)
    tokens, lengths = batch["net_input"]["src_tokens"], batch["net_input"]["src_lengths"]
    assert tokens.shape == (6, 20)
    assert lengths.tolist() == [20, 20, 19, 19, 18, 18]
    assert tokens[:, -1].eq(EOS).all()
    assert tokens[-1].eq(PAD).tolist() == [True, True] + [False] * 18
