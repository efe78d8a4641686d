"""The model: equal to fairseq's own where it must be, and the same in every way of decoding."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

from fairseq_mhe.attention import KINDS, cache
from tests.fixtures.models import make_batch, make_dictionary, make_model, search


def real(batch) -> torch.Tensor:
    return batch["prev_output_tokens"].ne(make_dictionary().pad())


@pytest.mark.parametrize("normalize_before", [False, True])
def test_mha_with_biases_is_fairseqs_transformer(normalize_before: bool) -> None:
    sides = {f"{side}_normalize_before": normalize_before for side in ("encoder", "decoder")}
    stock = make_model("transformer", **sides)
    ours = make_model(attention="mha", attention_bias=True, seed=2, **sides)
    for parameter in stock.parameters():  # biases start at zero; make them matter
        nn.init.normal_(parameter, std=0.2)
    ours.load_state_dict(stock.state_dict())
    batch = make_batch()
    expected, found = stock(**batch)[0], ours(**batch)[0]
    torch.testing.assert_close(found[real(batch)], expected[real(batch)], rtol=0, atol=2e-5)
    for one, other in zip(search([stock], batch), search([ours], batch), strict=True):
        assert [h["tokens"].tolist() for h in one] == [h["tokens"].tolist() for h in other]


def test_what_runs_on_gpus_is_fairseqs_transformer_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its encoder and its masks ask nothing; computed on the CPU."""
    stock, ours = make_model("transformer"), make_model(attention="mha", attention_bias=True)
    ours.load_state_dict(stock.state_dict())
    batch = make_batch()
    expected, memory = stock(**batch)[0], stock.encoder(batch["src_tokens"], None, True)
    monkeypatch.setattr(torch.Tensor, "is_cuda", property(lambda self: True))
    found, ours_memory = ours(**batch)[0], ours.encoder(batch["src_tokens"], None, True)
    torch.testing.assert_close(found[real(batch)], expected[real(batch)], rtol=0, atol=2e-5)
    memory.pop("fc_results")  # of data2vec alone
    torch.testing.assert_close(ours_memory, memory, rtol=0, atol=2e-5)


@pytest.mark.parametrize("biased", [False, True])
@pytest.mark.parametrize("kind", KINDS)
def test_training_on_gpus_has_the_same_gradients(
    kind: str, biased: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Joined products, and factors of all layers at once, in two steps; computed on the CPU."""
    model = make_model(attention=kind, attention_bias=biased).double()
    batch, gradients = make_batch(), []
    for gpu in (False, True, True):
        monkeypatch.setattr(torch.Tensor, "is_cuda", property(lambda self, gpu=gpu: gpu))
        model.zero_grad()
        model(**batch)[0][real(batch)].square().sum().backward()
        gradients.append([parameter.grad.clone() for parameter in model.parameters()])
    expected, *found = gradients
    for each in found:
        torch.testing.assert_close(each, expected, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("options", [{}, {"beam_size": 1}, {"len_penalty": 0.6, "beam_size": 7}])
def test_beam_search_scores_are_those_of_the_full_model(attention: str, options: dict) -> None:
    """Every hypothesis's token scores equal a fresh forward pass over it: cache, reordering and
    sharing are exact.
    """
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


def test_in_inference_mode_all_layers_ask_once() -> None:
    model, batch = make_model(attention="mha"), make_batch(sentences=3)
    with torch.inference_mode():
        memory = model.encoder(batch["src_tokens"], batch["src_lengths"])
        state: dict[str, Any] = {}
        model.decoder(batch["src_tokens"][:, :1], encoder_out=memory, incremental_state=state)
        before = cache._listed.cache_info().misses
        model.decoder.reorder_incremental_state_scripting(state, torch.tensor([2, 0, 1]))
    assert cache._listed.cache_info().misses == before + 1


def test_weights_are_computed_only_where_asked(attention: str) -> None:
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
