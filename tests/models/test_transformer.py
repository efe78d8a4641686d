"""The model: equal to fairseq's own where it must be, and the same in every way of decoding."""

import copy
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from fairseq_mhe.attention import KINDS
from fairseq_mhe.common.errors import UserError
from fairseq_mhe.models.model import FastDropout
from tests.fixtures.checkpoints import stir
from tests.fixtures.models import make_batch, make_dictionary, make_model, search

PRE_NORM = {"encoder_normalize_before": True, "decoder_normalize_before": True}


def word_logits(model: nn.Module, batch: dict[str, Tensor]) -> Tensor:
    """(tokens, V), without padding."""
    return model(**batch)[0][batch["prev_output_tokens"].ne(make_dictionary().pad())]


@pytest.mark.parametrize("gpu", [False, True])
@pytest.mark.parametrize("options", [{}, PRE_NORM, {"no_cross_attention": True}])
def test_mha_with_biases_is_fairseqs_transformer(
    options: dict, gpu: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """``gpu``: the code for GPUs, whose encoder and masks do not wait, runs on the CPU here."""
    stock = make_model("transformer", **options)
    ours = make_model(attention="mha", attention_bias=True, seed=2, **options)
    for parameter in stock.parameters():  # biases start at zero; make them matter
        nn.init.normal_(parameter, std=0.2)
    ours.load_state_dict(stock.state_dict())
    batch, results = make_batch(), []
    for model in (stock, ours):
        memory = model.encoder(batch["src_tokens"], None, True)
        memory.pop("fc_results", None)  # of data2vec alone
        hypotheses = [h["tokens"].tolist() for each in search([model], batch) for h in each]
        results.append((word_logits(model, batch), memory, hypotheses))
        monkeypatch.setattr(Tensor, "is_cuda", property(lambda self: gpu))
    torch.testing.assert_close(results[1], results[0], rtol=0, atol=2e-5)


@pytest.mark.parametrize("options", [{"beam_size": 1}, {"len_penalty": 0.6, "beam_size": 7}])
def test_beam_search_scores_are_those_of_the_full_model(attention: str, options: dict) -> None:
    """Cache, reordering and sharing are exact: a fresh forward pass gives the same scores."""
    model, batch = make_model(attention=attention), make_batch()
    eos = make_dictionary().eos()
    for row, hypotheses in enumerate(search([model], batch, **options)):
        source = batch["src_tokens"][row : row + 1]
        for hypothesis in hypotheses:
            tokens = hypothesis["tokens"]
            previous = torch.cat((torch.tensor([eos]), tokens[:-1])).unsqueeze(0)
            logits = model(source, batch["src_lengths"][row : row + 1], previous)[0]
            scores = logits.log_softmax(-1)[0, torch.arange(len(tokens)), tokens]
            torch.testing.assert_close(hypothesis["positional_scores"], scores, rtol=0, atol=1e-5)


def test_attention_weights_are_computed_only_if_they_are_used(attention: str) -> None:
    model, batch = make_model(attention=attention), make_batch()
    weights = model(**batch)[1]["attn"][0]
    assert weights.shape == (5, 7, 7)
    sums = weights.sum(-1)
    torch.testing.assert_close(sums, torch.ones_like(sums))
    assert weights[0, 0].gt(0).all()
    assert torch.count_nonzero(weights[4, :, :4]) == 0  # sources are padded on the left
    model.train()
    assert model(**batch)[1]["attn"] is None
    model.eval()
    assert model(**batch, alignment_layer=0, alignment_heads=1)[1]["attn"][0] is not None
    hypothesis = search([model], batch)[0][0]
    assert hypothesis["attention"].shape == (7, len(hypothesis["tokens"]))
    model.make_generation_fast_(need_attn=False)
    assert model(**batch)[1]["attn"] is None
    assert search([model], batch)[0][0]["attention"].numel() == 0


@pytest.mark.parametrize("p", [0.1, 0.5, 0.9])
def test_dropout_keeps_its_rate_the_mean_and_independence(p: float) -> None:
    count = 400_001  # not a multiple of the four values that share a random number
    x = torch.ones(count, dtype=torch.bfloat16, requires_grad=True)
    y = FastDropout(p)(x)
    kept = y != 0
    assert kept.double().mean().item() == pytest.approx(1 - p, abs=3 * (p * (1 - p) / count) ** 0.5)
    assert y[kept].unique().tolist() == pytest.approx([1 / (1 - p)], rel=2**-8)
    (gradient,) = torch.autograd.grad(y.sum(), x)
    assert torch.equal(gradient, y)
    # Neighbours, which share a drawn number, are dropped independently of each other.
    both = (kept[:-1] & kept[1:]).double().mean().item()
    assert both == pytest.approx((1 - p) ** 2, abs=0.004)


@pytest.mark.parametrize("side", ["Encoder", "Decoder", "EncoderLayerBase", "DecoderLayerBase"])
def test_retain_dropout_modules_names_the_same_modules_as_in_fairseq(side: str) -> None:
    dropping = []
    for model in (make_model("transformer"), make_model(attention="mha", attention_bias=True)):
        retained = [f"Transformer{side}"]
        model.make_generation_fast_(retain_dropout=True, retain_dropout_modules=retained)
        modules = model.named_modules()
        dropping.append([n for n, m in modules if getattr(m, "apply_during_inference", False)])
    assert dropping[0] == dropping[1] != []


@pytest.mark.parametrize(("first", "dtype"), [(True, torch.float64), (False, torch.bfloat16)])
@pytest.mark.parametrize("kind", KINDS)
def test_a_fast_model_computes_the_same(kind: str, first: bool, dtype: torch.dtype) -> None:
    """If it is moved ``first``, or after make_generation_fast_(); with autograd and without it."""
    model, batch = stir(make_model(attention=kind, attention_bias=True)), make_batch()
    expected = word_logits(model, batch).detach()
    fast = copy.deepcopy(model)
    if first:
        fast = fast.to(dtype)
    fast.make_generation_fast_()
    fast = fast.to(dtype)
    fast.make_generation_fast_()  # the second call changes nothing
    tolerance = 1e-5 if dtype == torch.float64 else 0.1 * float(expected.abs().max())
    for grad in (True, False):
        with torch.set_grad_enabled(grad):
            logits = word_logits(fast, batch)
        torch.testing.assert_close(logits.float(), expected, rtol=0, atol=tolerance)
    with torch.no_grad():
        assert torch.equal(word_logits(copy.deepcopy(fast), batch), logits)
    fast.float()
    torch.testing.assert_close(word_logits(fast, batch), expected, rtol=0, atol=tolerance)
    if dtype == torch.float64:
        hypotheses = [h["tokens"].tolist() for each in search([model], batch) for h in each]
        found = [h["tokens"].tolist() for each in search([fast], batch) for h in each]
        assert found == hypotheses


def test_weights_of_another_kind_and_of_a_fast_model_are_refused() -> None:
    model, weights = make_model(attention="mhe_mul"), make_model(attention="mha").state_dict()
    with pytest.raises(UserError, match=r"^the checkpoint is not of this model: .*--attention"):
        model.load_state_dict(weights)
    model.load_state_dict(weights := model.state_dict())
    model.make_generation_fast_()
    with pytest.raises(UserError, match="load the checkpoint into a new model"):
        model.load_state_dict(weights)


def test_a_kind_of_a_user_generates_by_its_hooks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Red if plain heads of the parent class take the place of an overridden hook."""

    class Doubled(KINDS["mhe_mul"]):
        def queries(self, x: Tensor) -> Tensor:
            return 2 * super().queries(x)

    monkeypatch.setitem(KINDS, "doubled", Doubled)
    model, batch = stir(make_model(attention="doubled")), make_batch()
    expected = word_logits(model, batch)
    model.make_generation_fast_()
    torch.testing.assert_close(word_logits(model, batch), expected, rtol=0, atol=1e-5)


@pytest.mark.parametrize("modules", [None, ["MultiheadAttention"], ["TransformerEncoder"]])
def test_attention_weights_are_dropped_in_generation_if_that_is_retained(modules: Any) -> None:
    options = {"attention": "mhe_add", "attention_dropout": 0.5, "dropout": 0.0}
    model, batch = stir(make_model(**options)), make_batch()
    model.make_generation_fast_(retain_dropout=True, retain_dropout_modules=modules)
    differs = not torch.equal(word_logits(model, batch), word_logits(model, batch))
    assert differs == (modules != ["TransformerEncoder"])
