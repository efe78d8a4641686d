"""Models are compared and measured on words, not on padding, of data of their own sort."""

import json
from argparse import Namespace
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from fairseq.data import Dictionary, data_utils
from fairseq.models import build_model
from torch import nn

from fairseq_mhe import cli
from fairseq_mhe.checkpoints.checkpoint import Source, open_source
from fairseq_mhe.common.errors import UserError
from fairseq_mhe.convert.compare import (
    Material,
    open_material,
    pair_batches,
    random_batches,
    text_batches,
)
from fairseq_mhe.convert.moments import measure_inputs
from fairseq_mhe.models.build import sublayers
from fairseq_mhe.prepare.corpora.home_assistant import read_corpus
from fairseq_mhe.prepare.data_folder import load_task, model_dictionary, open_binary, open_data
from fairseq_mhe.prepare.manifest import TEXT
from fairseq_mhe.prepare.running_text import TextConfig, prepare_text
from tests.checkpoints.test_language_checkpoints import save
from tests.fixtures.checkpoints import SENTENCES
from tests.fixtures.language import FAMILIES, ROBERTA, language_options, small_text
from tests.fixtures.models import make_batch, make_dictionary, make_model

PAD = 1
#: A small folder of pairs of fairseq-preprocess is the fixture ``data``; of running text, ``text``.
LINES = [pair[0] for pair in read_corpus()["train"][:200]]


class Shifted(nn.Module):
    """A model whose logits are off by 0.5 for one word, and by far at padding."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, **inputs: Any) -> tuple[torch.Tensor, None]:
        logits = self.model(**inputs)[0].clone()
        logits[0, 0, 7] += 0.5
        logits[inputs["prev_output_tokens"].eq(PAD)] += 100
        return logits, None


def material(model: nn.Module, batches: list[dict[str, Any]]) -> Material:
    """The model's source, to be compared on batches."""
    source: Any = SimpleNamespace(model=model)
    task: Any = SimpleNamespace(target_dictionary=make_dictionary())
    return Material(source, task, batches, data=Path("somewhere"))


def test_the_largest_difference_at_real_positions() -> None:
    model = make_model(attention="mha")
    batches = [{"net_input": make_batch(seed=seed)} for seed in (0, 1)]
    largest, largest_logit, positions = material(model, batches).difference(Shifted(model))
    assert largest == pytest.approx(0.5, abs=1e-6)
    real = [batch["net_input"]["prev_output_tokens"].ne(PAD) for batch in batches]
    assert positions == sum(int(each.sum()) for each in real)
    with torch.inference_mode():
        logits = [model(**b["net_input"])[0][r] for b, r in zip(batches, real, strict=True)]
    assert largest_logit == pytest.approx(max(float(each.abs().max()) for each in logits))


@pytest.mark.parametrize("cutoff", [None, [6, 9]])
def test_the_loss_is_the_mean_over_words(cutoff: list[int] | None) -> None:
    model: Any = make_model(attention="mha", adaptive_softmax_cutoff=cutoff)
    inputs = make_batch()
    target = inputs["prev_output_tokens"].roll(-1, dims=1)
    target[:, -1] = PAD
    with torch.inference_mode():
        output = model(**inputs)[0]
        chances = output.log_softmax(dim=-1)
        if cutoff:
            chances = model.decoder.adaptive_softmax.get_log_prob(output, None)
    rows, columns = target.ne(PAD).nonzero(as_tuple=True)
    by_hand = -chances[rows, columns, target[rows, columns]].mean()
    loss = material(model, [{"net_input": inputs, "target": target}]).loss(model)
    assert loss == pytest.approx(float(by_hand), rel=1e-5)


def test_searches_end_in_the_end_of_sentence(make_source: Callable[..., Source]) -> None:
    source = make_source(learned=True, attention="mha")
    task = source.task()
    found = Material(source, task, random_batches(source)).search(source.model, 2)
    assert len(found) == 32
    eos = task.target_dictionary.eos()
    assert all(tokens[-1] == eos for tokens in found)


def test_measured_inputs_are_those_of_words_and_not_of_padding() -> None:
    model = make_model(attention="mha")
    batch = {"net_input": make_batch()}
    seen: dict[nn.Module, tuple[torch.Tensor, torch.Tensor]] = {}

    def watch(module: nn.Module, args: Any, kwargs: Any) -> None:
        seen[module] = kwargs["query"], kwargs["key"]

    for _, _, module in sublayers(model):
        module.register_forward_pre_hook(watch, with_kwargs=True)
    found = measure_inputs(model, [batch, batch], pad=PAD)  # twice the same: the same moments
    read = (batch["net_input"][key] for key in ("src_tokens", "prev_output_tokens"))
    source, target = (tokens.ne(PAD).T for tokens in read)
    places = {"encoder": (source, source), "decoder": (target, target), "cross": (target, source)}
    for name, place, module in sublayers(model):
        for x, mask, moment in zip(seen[module], places[place], found[name], strict=True):
            rows = x[mask].double()
            torch.testing.assert_close(moment.mean, rows.mean(dim=0))
            covariance = torch.cov(rows.T, correction=0)
            torch.testing.assert_close(moment.covariance, covariance, atol=1e-9, rtol=1e-6)


def test_pairs_that_the_model_has_no_positions_for_are_left_out(data: Path) -> None:
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
    with pytest.raises(UserError, match="has no sentences in 'test' that the model has the posi"):
        pair_batches(task, make_model(max_source_positions=1), "test", 10)
    with pytest.raises(UserError, match="has no split 'dev'"):
        pair_batches(task, few, "dev", 5)


@pytest.fixture(scope="module")
def text(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small folder of running text."""
    folder = tmp_path_factory.mktemp("text")
    return small_text(folder, LINES, vocab_size=150, block=30)


@pytest.fixture(scope="module", params=FAMILIES, ids=lambda family: family[0])
def checkpoint(
    request: pytest.FixtureRequest, text: Path, tmp_path_factory: pytest.TempPathFactory
) -> Path:
    """A random model of a family with the folder's vocabulary."""
    arch = request.param[0]
    words = Dictionary.load(str(open_data(text, TEXT).dictionary()))
    if arch == ROBERTA[0]:
        words.add_symbol("<mask>")
    task: Any = SimpleNamespace(source_dictionary=words, target_dictionary=words)
    options = language_options(arch, attention="mha")
    torch.manual_seed(1)
    model = build_model(Namespace(**options), task)
    for parameter in model.parameters():
        nn.init.normal_(parameter, std=0.2)
    path = tmp_path_factory.mktemp("checkpoint") / "in.pt"
    return save(path, arch, model, attention="mha")


def test_blocks_are_read_as_fairseqs_tasks_read_them(text: Path, checkpoint: Path) -> None:
    source, folder = open_source(checkpoint), open_data(text, TEXT)
    words = model_dictionary(folder.dictionary(), source.family.name == ROBERTA[0])
    blocks = data_utils.load_indexed_dataset(str(text / "bin" / "valid"), words)
    lines = sorted(blocks[index].tolist() for index in range(len(blocks)))
    batches, again = (text_batches(folder, source, "valid", 1000) for _ in range(2))
    mask, bos, eos, pad = words.index("<mask>"), words.bos(), words.eos(), words.pad()
    found, masked = [], 0
    for batch, other in zip(batches, again, strict=True):
        tokens, targets = batch["net_input"]["src_tokens"], batch["target"]
        assert torch.equal(tokens, other["net_input"]["src_tokens"])  # the same masks each time
        for read, target in zip(tokens.tolist(), targets.tolist(), strict=True):
            if source.family.name != ROBERTA[0]:
                line = [word for word in target if word != pad]
                assert read[: len(line)] == [eos, *line[:-1]]
            else:
                assert (read[0], target[0]) == (bos, pad)
                pairs = [pair for pair in zip(read, target, strict=True) if pair[0] != pad][1:]
                assert all((r == mask) == (t != pad) and t != eos for r, t in pairs)
                line = [t if r == mask else r for r, t in pairs]
                masked += sum(r == mask for r, _ in pairs)
            found.append(line)
    assert sorted(found) == lines
    if source.family.name == ROBERTA[0]:
        assert masked == pytest.approx(0.15 * sum(map(len, lines)), rel=0.4)


def test_conversions_measure_on_the_text(
    text: Path, checkpoint: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out.pt"
    words = ["--to", "mqa", "--data", str(text), "--sentences", "20", "--json"]
    assert cli.main(["convert", str(checkpoint), str(out), *words]) == 0
    report = json.loads(capsys.readouterr().out)
    assert report["weighted_by"] == str(text)
    measured = open_material(open_source(checkpoint), text, 20)
    assert measured.loss(open_source(out).model) == pytest.approx(report["loss"])
    assert measured.loss(measured.source.model) == pytest.approx(report["loss_before"])
    assert cli.main(["fold", str(checkpoint), str(out), "--data", str(text)]) == 0
    printed = capsys.readouterr().out
    assert f"(test of {text})" in printed
    assert "hypotheses" not in printed


def test_another_vocabulary_is_refused(text: Path, checkpoint: Path, tmp_path: Path) -> None:
    small = {"hold_out": 5, "vocab_size": 120, "workers": 1}
    config = TextConfig(train=(text.parent / "text.txt",), out=tmp_path, **small)
    with pytest.raises(UserError, match=r"does not belong to .*: it has"):
        open_material(open_source(checkpoint), prepare_text(config), 5)
