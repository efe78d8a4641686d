"""Models are compared, measured and drawn on data of their own sort."""

from __future__ import annotations

import json
from argparse import Namespace
from pathlib import Path
from typing import Any

import pytest
import torch
from fairseq.data import Dictionary, data_utils
from fairseq.models import build_model
from torch import nn

from fairseq_mhe import cli
from fairseq_mhe.checkpoints.checkpoint import Source, open_source
from fairseq_mhe.common.errors import UserError
from fairseq_mhe.convert.material import (
    batches,
    dictionary_of,
    open_material,
    sentence_pairs,
    text_batches,
)
from fairseq_mhe.prepare.corpora.home_assistant import read_corpus
from fairseq_mhe.prepare.data_folder import load_task, open_binary, open_data
from fairseq_mhe.prepare.manifest import TEXT
from fairseq_mhe.prepare.running_text import TextConfig, prepare_text
from fairseq_mhe.report.attention_map import encode, language_map
from tests.checkpoints.test_language_checkpoints import save_language_model
from tests.fixtures.checkpoints import SENTENCES
from tests.fixtures.language import FAMILIES, ROBERTA, language_options, small_text
from tests.fixtures.models import make_model

#: A small folder of pairs of fairseq-preprocess is the fixture ``data``; of running text, ``text``.
LINES = [pair[0] for pair in read_corpus()["train"][:200]]


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
    task: Any = type("Task", (), {"source_dictionary": words, "target_dictionary": words})()
    options = language_options(arch, attention="mha")
    torch.manual_seed(1)
    model = build_model(Namespace(**options), task)
    for parameter in model.parameters():
        nn.init.normal_(parameter, std=0.2)
    path = tmp_path_factory.mktemp("checkpoint") / "in.pt"
    return save_language_model(path, arch, model, attention="mha")


def lines_of(text: Path, subset: str, words: Dictionary) -> list[list[int]]:
    blocks = data_utils.load_indexed_dataset(str(text / "bin" / subset), words)
    return [blocks[index].tolist() for index in range(len(blocks))]


def test_blocks_are_read_as_fairseqs_tasks_read_them(text: Path, checkpoint: Path) -> None:
    source = open_source(checkpoint)
    words = dictionary_of(open_data(text, TEXT), source)
    lines = lines_of(text, "valid", words)
    masked = source.family.name == ROBERTA[0]
    seen: dict[int, tuple[list[int], list[int]]] = {}
    for batch in text_batches(open_data(text, TEXT), source, "valid", 1000):
        read, said = batch["net_input"]["src_tokens"].tolist(), batch["target"].tolist()
        assert read == text_batches_again(text, source, batch["id"].tolist())
        for index, one, other in zip(batch["id"].tolist(), read, said, strict=True):
            seen[index] = one, other
    assert sorted(seen) == list(range(len(lines)))
    hidden = 0
    for index, line in enumerate(lines):
        read, said = ([*row, words.pad()] for row in seen[index])
        if not masked:
            assert read[: len(line)] == [words.eos(), *line[:-1]]
            assert said[: len(line)] == line
            continue
        assert (read[0], said[0]) == (words.bos(), words.pad())
        for place, word in enumerate(line, start=1):
            if read[place] == words.index("<mask>"):
                assert said[place] == word != words.eos()
                hidden += 1
            else:
                assert (read[place], said[place]) == (word, words.pad())
    if masked:
        assert hidden == pytest.approx(0.15 * sum(map(len, lines)), rel=0.4)


def text_batches_again(text: Path, source: Source, ids: list[int]) -> list[list[int]]:
    """The same blocks are masked at the same places every time."""
    for batch in text_batches(open_data(text, TEXT), source, "valid", 1000):
        if batch["id"].tolist() == ids:
            return batch["net_input"]["src_tokens"].tolist()  # type: ignore[no-any-return]
    return []


def test_conversions_measure_on_the_text(
    text: Path, checkpoint: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out.pt"
    words = ["--to", "mqa", "--data", str(text), "--sentences", "20", "--json"]
    assert cli.main(["convert", str(checkpoint), str(out), *words]) == 0
    told = json.loads(capsys.readouterr().out)
    losses = [tried["loss"] for tried in told["tried"].values()]
    assert len(losses) == 2
    assert all(loss > 0 for loss in losses)
    material = open_material(open_source(checkpoint), text, 20)
    assert material.loss(open_source(out).model) == pytest.approx(min(losses))
    assert cli.main(["fold", str(checkpoint), str(out), "--data", str(text)]) == 0
    told = capsys.readouterr().out
    assert f"(test of {text})" in told
    assert "hypotheses" not in told


def test_another_vocabulary_is_refused(text: Path, checkpoint: Path, tmp_path: Path) -> None:
    config = TextConfig(
        train=(text.parent / "text.txt",), hold_out=5, vocab_size=120, workers=1, out=tmp_path
    )
    with pytest.raises(UserError, match=r"does not belong to .*: it has"):
        open_material(open_source(checkpoint), prepare_text(config), 5)


def test_the_map_has_every_token(
    text: Path, checkpoint: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    source = open_source(checkpoint)
    words = dictionary_of(open_data(text, TEXT), source)
    sentence = encode(LINES[1][:20], 0, open_data(text, TEXT).processing(), words, 40)
    (place,) = source.attention
    shown = language_map(source, words, sentence, place)
    pieces = [words[index] for index in sentence[0].tolist()]
    size = len(shown.queries), len(shown.keys)
    assert [layer.shape for layer in shown.layers] == [(4, *size)] * 2
    for layer in shown.layers:
        torch.testing.assert_close(layer.sum(-1), torch.ones(4, size[0]))
    if place == "encoder":
        assert list(shown.queries) == list(shown.keys) == ["<s>", *pieces]
    else:
        assert list(shown.keys) == ["</s>", *pieces[:-1]]
        assert list(shown.queries) == pieces
        assert not any(layer.triu(1).any() for layer in shown.layers)
    line = ["attention-map", str(checkpoint), "--data", str(text), "--sentence", "Turn it on"]
    assert cli.main([*line, "--out", str(tmp_path / "map.png")]) == 0
    assert f"map.png: {place} attention (mha), 2 layers, 4 heads" in capsys.readouterr().out
    assert cli.main([*line, "--out", str(tmp_path / "no.png"), "--place", "cross"]) == 2
    assert "in.pt has no cross attention" in capsys.readouterr().err


def test_a_folder_of_fairseq_preprocess(data: Path) -> None:
    task = load_task(open_binary(data))
    pairs = sentence_pairs(task, "test", 20, make_model())
    assert [pair["id"] for pair in pairs] == list(range(20))
    made = batches(task, "test", pairs)
    assert sorted(i for batch in made for i in batch["id"].tolist()) == list(range(20))
    assert len(sentence_pairs(task, "valid", 10_000, make_model())) == SENTENCES


def test_a_split_that_is_not_there(data: Path) -> None:
    with pytest.raises(UserError, match="has no split 'dev'"):
        sentence_pairs(load_task(open_binary(data)), "dev", 5, make_model())


def test_sentences_that_the_model_has_no_positions_for_are_left_out(data: Path) -> None:
    task = load_task(open_binary(data))
    few = make_model(max_source_positions=4, max_target_positions=7)
    pairs = sentence_pairs(task, "test", 10, few)  # of 2 to 10 tokens, again and again
    assert [pair["id"] for pair in pairs] == [0, 1, 2, 9, 10, 11, 18, 19, 20, 27]
    with pytest.raises(
        UserError, match="has no sentences in 'test' that the model has the posi"
    ):
        sentence_pairs(task, "test", 10, make_model(max_source_positions=1))
