"""bfloat16 training on a CPU: padded products compute the same, in few shapes."""

import pytest
import torch

from fairseq_mhe.attention import few_shapes
from fairseq_mhe.attention.fused import attend
from fairseq_mhe.attention.masks import CausalMask
from fairseq_mhe.attention.reference import attend_reference
from tests.attention.conftest import Operators, random, right_padding
from tests.fixtures.models import make_batch, make_model

# Sums of products of numbers that bfloat16 rounds to 8 bits.
ROUNDED = {"rtol": 0.02, "atol": 0.02}


def gradients(function, *inputs: torch.Tensor) -> list[torch.Tensor]:
    """Return a function's output and gradients, computed in the inputs' type, in float64."""
    leaves = [x.clone().requires_grad_() for x in inputs]
    output = function(*leaves)
    grads = torch.autograd.grad(output, leaves, random(*output.shape, seed=9).to(output))
    return [x.double() for x in (output, *grads)]


@pytest.mark.parametrize("kv_heads", [(4, 4), (1, 1), (2, 4), (4, 1)])
@pytest.mark.parametrize("lengths", [(7, 7), (3, 21), (16, 16)])
@pytest.mark.parametrize("masking", ["none", "padding", "causal", "both"])
def test_attention_equals_the_reference(kv_heads, lengths, masking) -> None:
    (key_heads, value_heads), (queries, keys) = kv_heads, lengths
    q = random(queries, 5, 4, 8).permute(1, 2, 0, 3).bfloat16()  # as split_heads
    k = random(5, key_heads, keys, 8, seed=1).bfloat16()
    v = random(5, value_heads, keys, 6, seed=2).bfloat16()
    masks = {"key_padding_mask": None, "attn_mask": None}
    if masking in ("padding", "both"):
        masks["key_padding_mask"] = right_padding(5, keys)
        masks["key_padding_mask"][:, 0] = False
    if masking in ("causal", "both") and queries == keys:
        masks["attn_mask"] = CausalMask(queries)
    actual = gradients(lambda *x: attend(*x, scale=0.3, **masks).heads, q, k, v)
    exact = [x.double() for x in (q, k, v)]
    expected = gradients(lambda *x: attend_reference(*x, scale=0.3, **masks)[0], *exact)
    for one, other in zip(actual, expected, strict=True):
        torch.testing.assert_close(one, other, **ROUNDED)


@pytest.mark.parametrize("attention", ["mha", "mhe_mul", "mqa"])
def test_a_model_trains_alike_with_fewer_shapes(attention: str, monkeypatch) -> None:
    """Without padding each length is a shape of its own; loss and gradients are the same."""
    shapes, losses = {}, {}
    for padded in (True, False):
        if not padded:
            monkeypatch.setattr(few_shapes, "compiles_each_shape", lambda x: False)
        model = make_model(attention=attention, dropout=0.0, encoder_layers=1, decoder_layers=1)
        model.bfloat16().train()
        losses[padded] = []
        with Operators() as operators:
            for longest in range(17, 33):
                logits = model(**make_batch(sentences=13, longest=longest))[0]
                loss = logits.float().logsumexp(-1).mean()
                loss.backward()
                losses[padded].append(loss.detach())
        losses[padded] += [parameter.grad.float().norm() for parameter in model.parameters()]
        products = [(name, out.shape) for name, out in operators.calls if "mm" in name]
        shapes[padded] = len(set(products))
    torch.testing.assert_close(losses[True], losses[False], rtol=0.02, atol=1e-3)
    assert shapes[True] < 0.6 * shapes[False]
