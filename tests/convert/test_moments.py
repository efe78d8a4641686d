"""What sublayers read is measured on real positions only."""

from __future__ import annotations

import torch

from fairseq_mhe.convert.moments import measure_inputs
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
