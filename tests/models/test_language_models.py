"""RoBERTa and the causal language model equal fairseq's, with any padding and step by step."""

import pytest
import torch
from torch import Tensor, nn

from fairseq_mhe.attention import KINDS
from tests.fixtures.language import (
    ADAPTIVE,
    FAMILIES,
    LM,
    ROBERTA,
    make_language_model,
    make_random,
    sentences,
)
from tests.fixtures.models import make_dictionary, make_model
from tests.fixtures.refusals import refuses

PAD = make_dictionary().pad()
# float32 with sums in another order over two layers of width 16; logits are around 1.
CLOSE = {"rtol": 0, "atol": 3e-6}

each_family = pytest.mark.parametrize("family", FAMILIES, ids=lambda family: family[0])
each_kind = pytest.mark.parametrize("kind", KINDS)


def logits(model: nn.Module, tokens: Tensor) -> Tensor:
    """(B, T, vocabulary)."""
    with torch.inference_mode():
        return model(tokens)[0]


#: Options of fairseq that change the embedding or the output.
VARIANTS = [
    *((family, {f"{family[2]}_normalize_before": True}) for family in FAMILIES),
    *((family, {f"{family[2]}_normalize_before": False}) for family in FAMILIES),
    *((family, {"no_scale_embedding": True}) for family in FAMILIES),
    (LM, ADAPTIVE),
    (LM, {"character_embeddings": True, "character_filters": "[(1, 8), (2, 8)]"}),
]


@pytest.mark.parametrize(("family", "options"), VARIANTS, ids=str)
def test_mha_with_biases_is_fairseqs(family: tuple, options: dict) -> None:
    arch, theirs, _ = family
    options = {"activation_fn": "gelu", **options}
    if "character_embeddings" in options:
        options["share_decoder_input_output_embed"] = False
    stock = make_random(theirs, **options)
    ours = make_language_model(arch, seed=2, attention="mha", attention_bias=True, **options)
    ours.load_state_dict(stock.state_dict())
    tokens = sentences()
    results = []
    for model in (ours, stock):
        if "adaptive_input" in options:  # its softmax is no product
            log_probs = model.get_normalized_probs(model(tokens), True, {"target": tokens})
        else:
            log_probs = logits(model, tokens)
        results.append(log_probs[tokens.ne(PAD)])
    torch.testing.assert_close(*results, rtol=0, atol=2e-5)


@pytest.mark.parametrize("cutoff", ["10", None])
def test_embeddings_and_outputs_that_do_not_fit_are_refused(cutoff: str | None) -> None:
    with refuses("--adaptive-input"):
        make_language_model(LM[0], **{**ADAPTIVE, "adaptive_input_cutoff": cutoff})


@pytest.mark.parametrize("arch", [LM[0], "transformer_mhe_base"])
def test_an_adaptive_softmax_beside_a_shared_table_loads_its_own_weights(arch: str) -> None:
    options = {"adaptive_softmax_cutoff": "10,20" if arch == LM[0] else [10, 20]}
    make = make_language_model if arch == LM[0] else make_model
    saved, other = (make(arch, seed=seed, **options) for seed in (1, 2))
    other.load_state_dict(saved.state_dict())
    for name, value in saved.state_dict().items():
        assert torch.equal(other.state_dict()[name], value)


@each_family
@each_kind
def test_padding_changes_nothing(family: tuple, kind: str) -> None:
    """A sentence has the same logits alone and beside longer ones (as pangolinn tests)."""
    model, tokens = make_random(family[0], attention=kind), sentences()
    together = logits(model, tokens)
    for row, sentence in enumerate(tokens):
        alone = sentence[sentence.ne(PAD)].unsqueeze(0)
        length = alone.size(1)
        torch.testing.assert_close(together[row, :length], logits(model, alone)[0], **CLOSE)


def test_incremental_decoding_is_full_decoding(attention: str) -> None:
    model, tokens = make_random(LM[0], attention=attention), sentences(count=3, longest=7)[:, :5]
    whole = logits(model, tokens)
    state: dict = {}
    with torch.inference_mode():
        for length in range(1, tokens.size(1) + 1):
            step = model.decoder(tokens[:, :length], incremental_state=state)[0][:, 0]
            torch.testing.assert_close(step, whole[:, length - 1], **CLOSE)


@pytest.mark.parametrize("positions", [40, None])
def test_a_causal_model_has_the_given_positions_or_the_block_size(positions: int | None) -> None:
    """``tokens_per_sample`` is 32."""
    model = make_language_model(LM[0], max_target_positions=positions)
    assert model.max_positions() == (positions or 32)


@pytest.mark.parametrize("kind", ["mha", "mhe_mul", "collaborative"])
def test_masked_model_starts_as_bert_but_for_a_kinds_own(kind: str) -> None:
    """Projections N(0, 0.02), biases 0; head embeddings, mixing, content as in translation."""
    options = {"head_embedding_std": 0.5} if kind == "mhe_mul" else {}
    sizes = {"encoder_embed_dim": 128, "encoder_attention_heads": 2, "attention_bias": True}
    model = make_language_model(ROBERTA[0], attention=kind, **options, **sizes)
    for name, value in model.named_parameters():
        if name.endswith(("y_embedding", "e_embedding")):
            assert 0.35 < value.std() < 0.65
        elif name.endswith("bias") or "content_proj" in name:
            assert not value.any()
        elif "_proj.weight" in name:
            assert 0.018 < value.std() < 0.022
        elif name.endswith("mixing"):
            assert value.abs().max() > 0.1  # Xavier uniform, not N(0, 0.02)
