"""Models are compared and measured on words, not padding, of data with their vocabulary."""

import shutil
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import nn

from fairseq_mhe.checkpoints.checkpoint import Source
from fairseq_mhe.common.errors import UserError
from fairseq_mhe.convert.compare import Material, open_material, pair_batches
from fairseq_mhe.convert.moments import measure_inputs
from fairseq_mhe.models.options import sublayers
from fairseq_mhe.prepare.data_folder import load_task, open_binary
from tests.fixtures.checkpoints import SENTENCES
from tests.fixtures.models import make_batch, make_dictionary, make_model

PAD = 1


@pytest.mark.parametrize("cutoff", [None, [6, 9]])
def test_the_loss_is_the_mean_over_target_tokens(cutoff: list[int] | None) -> None:
    model: Any = make_model(attention="mha", adaptive_softmax_cutoff=cutoff)
    inputs = make_batch()
    target = inputs["prev_output_tokens"].roll(-1, dims=1)
    target[:, -1] = PAD
    with torch.inference_mode():
        output = model(**inputs)[0]
        log_probs = output.log_softmax(dim=-1)
        if cutoff:
            log_probs = model.decoder.adaptive_softmax.get_log_prob(output, None)
    rows, columns = target.ne(PAD).nonzero(as_tuple=True)
    expected = -log_probs[rows, columns, target[rows, columns]].mean()
    source: Any = SimpleNamespace(model=model)
    task: Any = SimpleNamespace(target_dictionary=make_dictionary())
    batches = [{"net_input": inputs, "target": target}]
    loss = Material(source, task, batches, data=Path("somewhere")).loss(model)
    assert loss == pytest.approx(float(expected), rel=1e-5)


def test_measured_inputs_leave_padding_out() -> None:
    model = make_model(attention="mha")
    batch = {"net_input": make_batch()}
    seen: dict[nn.Module, tuple[torch.Tensor, torch.Tensor]] = {}

    def watch(module: nn.Module, args: Any, kwargs: Any) -> None:
        seen[module] = kwargs["query"], kwargs["key"]

    for _, _, module in sublayers(model):
        module.register_forward_pre_hook(watch, with_kwargs=True)
    measured = measure_inputs(model, [batch, batch], pad=PAD)  # a repetition changes no moment
    inputs = (batch["net_input"][key] for key in ("src_tokens", "prev_output_tokens"))
    source, target = (tokens.ne(PAD).T for tokens in inputs)
    places = {"encoder": (source, source), "decoder": (target, target), "cross": (target, source)}
    for name, place, module in sublayers(model):
        for x, mask, moment in zip(seen[module], places[place], measured[name], strict=True):
            rows = x[mask].double()
            torch.testing.assert_close(moment.mean, rows.mean(dim=0))
            covariance = torch.cov(rows.T, correction=0)
            torch.testing.assert_close(moment.covariance, covariance, atol=1e-9, rtol=1e-6)


@pytest.mark.parametrize("first_of_two", [False, True])
def test_data_with_other_words_are_refused(
    make_source: Callable[..., Source], tmp_path: Path, data: Path, first_of_two: bool
) -> None:
    """Words are compared with those of the training, also if it read several shards."""
    source, other = make_source(attention="mha"), shutil.copytree(data, tmp_path / "other")
    trained_on = f"{data}:{tmp_path / 'second'}" if first_of_two else str(data)
    source.state["cfg"]["task"]["data"] = trained_on
    assert open_material(source, other, 5).compared
    words = (data / "dict.de.txt").read_bytes()
    more, same_size = words + b"more 1\n", words.replace(b"w7 ", b"other ")
    for content, reason in ((more, "it has 44 and 45 words"), (same_size, "its dict.de.txt")):
        (other / "dict.de.txt").write_bytes(content)
        with pytest.raises(UserError, match=reason):
            open_material(source, other, 5)


def test_pairs_longer_than_the_models_positions_are_left_out(data: Path) -> None:
    task = load_task(open_binary(data))

    def ids(subset: str, count: int, model: Any) -> list[int]:
        batches = pair_batches(task, model, subset, count)
        lengths = [batch["net_input"]["src_tokens"].size(1) for batch in batches]
        assert lengths == sorted(lengths)
        return sorted(index for batch in batches for index in batch["id"].tolist())

    assert ids("test", 20, make_model()) == list(range(20))
    assert len(ids("valid", 10_000, make_model())) == SENTENCES
    few = make_model(max_source_positions=4, max_target_positions=7)
    assert ids("test", 10, few) == [0, 1, 2, 9, 10, 11, 18, 19, 20, 27]  # of 2 to 10 tokens
    with pytest.raises(UserError, match="'test'"):
        pair_batches(task, make_model(max_source_positions=1), "test", 10)
    with pytest.raises(UserError, match="'dev'"):
        pair_batches(task, few, "dev", 5)
