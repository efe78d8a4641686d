"""Heads over spans and answers, and the loss of answers, against sums written out one by one."""

import copy
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from fairseq.criterions.sentence_prediction import SentencePredictionConfig
from torch import Tensor, nn
from torch.nn import functional

from fairseq_mhe.models.understanding import ANSWER_HEAD, WORDS_HEAD, AnswerSpanCriterion
from tests.fixtures.language import make_language_model, sentences
from tests.fixtures.models import make_dictionary


@pytest.fixture(scope="module")
def model() -> nn.Module:
    """A small masked language model with a head of each sort."""
    roberta: Any = make_language_model("roberta_mhe", attention="mhe_mul")
    for name in ("sentence_classification_head", ANSWER_HEAD, WORDS_HEAD):
        roberta.register_classification_head(name, num_classes=2)
    return roberta.eval()


def head(model: Any, name: str, features: Tensor) -> Tensor:
    """fairseq's head written out: linear, tanh, linear."""
    layers = model.classification_heads[name]
    return layers.out_proj(torch.tanh(layers.dense(features)))


@torch.no_grad()
def test_answers_are_scored_at_every_position(model: Any) -> None:
    tokens = sentences()
    features, _ = model(tokens, features_only=True)
    actual, _ = model(tokens, features_only=True, classification_head_name=ANSWER_HEAD)
    assert actual.shape == (*tokens.shape, 2)
    for position in range(tokens.size(1)):
        expected = head(model, ANSWER_HEAD, features[:, position])
        torch.testing.assert_close(actual[:, position], expected)


@torch.no_grad()
def test_spans_are_read_as_means(model: Any) -> None:
    tokens = sentences(count=3)
    spans = torch.tensor([[1, 1, 3, 5], [2, 4, 1, 2], [1, 6, 6, 6]])
    features, _ = model(tokens, features_only=True)
    actual, _ = model(tokens, spans=spans, features_only=True, classification_head_name=WORDS_HEAD)
    for row, (a, b, c, d) in enumerate(spans.tolist()):
        x = features[row]
        inputs = torch.cat([x[0], x[a : b + 1].mean(0), x[c : d + 1].mean(0)])
        torch.testing.assert_close(actual[row], head(model, WORDS_HEAD, inputs))


def windows() -> Tensor:
    """``<s> question </s> </s> passage </s>``, padded: passages from 5 to 8, and from 4 to 5."""
    words = make_dictionary()
    bos, end, pad = words.bos(), words.eos(), words.pad()
    return torch.tensor(
        [[bos, 7, 8, end, end, 9, 10, 11, 12, end], [bos, 7, end, end, 9, 10, end, pad, pad, pad]]
    )


@torch.no_grad()
def test_the_loss_is_both_ends_cross_entropy(model: Any) -> None:
    tokens, answers = windows(), [(6, 7), (0, 0)]
    model = copy.deepcopy(model).bfloat16()  # whose loss is computed in float32
    words = make_dictionary()
    task: Any = SimpleNamespace(source_dictionary=words, label_dictionary=words)
    criterion = AnswerSpanCriterion(SentencePredictionConfig(), task)
    sample = {
        "net_input": {"src_tokens": tokens, "src_lengths": torch.tensor([10, 7])},
        "target": torch.tensor(answers, dtype=torch.float),
        "ntokens": 17,
    }
    loss, size, logged = criterion(model, sample)
    logits, _ = model(tokens, features_only=True, classification_head_name=ANSWER_HEAD)
    total, correct = 0.0, 0
    possible = [[0, 5, 6, 7, 8], [0, 4, 5]]  # <s> and the passage
    for row, (positions, ends) in enumerate(zip(possible, answers, strict=True)):
        scores = logits[row, positions].double()  # (positions, 2)
        target = torch.tensor([positions.index(end) for end in ends])
        total += functional.cross_entropy(scores.T, target).item()  # the mean of both ends
        correct += torch.equal(scores.argmax(0), target)
    assert loss.item() == pytest.approx(total, rel=1e-5)
    assert (size, logged["ncorrect"]) == (2, correct)
