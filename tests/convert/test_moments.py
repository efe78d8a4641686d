"""What sublayers read is measured on real positions only."""

from __future__ import annotations

import torch

from fairseq_mhe.convert.moments import Moments, measure_inputs, root
from fairseq_mhe.models.build import sublayers
from tests.fixtures.models import make_batch, make_model


def test_inputs_are_those_of_words_and_not_of_padding() -> None:
    model = make_model(attention="mha")
    batch = {"net_input": make_batch()}
    seen: dict[str, tuple[torch.Tensor, torch.Tensor]] = {}
    for name, _, module in sublayers(model):
        module.register_forward_pre_hook(
            lambda _, args, kwargs, name=name: seen.update(
                {name: (kwargs["query"], kwargs["key"])}
            ),
            with_kwargs=True,
        )
    found = measure_inputs(model, [batch, batch], pad=1)  # twice the same: the same moments
    source, target = (
        batch["net_input"][key].ne(1).T for key in ("src_tokens", "prev_output_tokens")
    )
    for name, place, _ in sublayers(model):
        masks = {
            "encoder": (source, source),
            "decoder": (target, target),
            "cross": (target, source),
        }[place]
        moments = (found[name].query, found[name].memory)
        for x, mask, moment in zip(seen[name], masks, moments, strict=True):
            rows = x[mask].double()
            torch.testing.assert_close(moment.mean, rows.mean(dim=0))
            torch.testing.assert_close(
                moment.covariance, torch.cov(rows.T, correction=0), atol=1e-9, rtol=1e-6
            )


def test_second_moments() -> None:
    x = torch.randn(50, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    moments = Moments(x.mean(dim=0), torch.cov(x.T, correction=0))
    torch.testing.assert_close(moments.second, x.T @ x / 50)
    with_one = torch.cat((x, torch.ones(50, 1)), dim=1)
    torch.testing.assert_close(moments.with_one(), with_one.T @ with_one / 50)


def test_roots() -> None:
    x = torch.randn(50, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    half, inverse = root(x.T @ x)
    torch.testing.assert_close(half @ half, x.T @ x)
    torch.testing.assert_close(half @ inverse, torch.eye(4, dtype=torch.float64))
