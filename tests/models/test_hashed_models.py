"""Models with hashed token embeddings: what they compute, train, remember and refuse."""

from __future__ import annotations

import argparse
import math
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from fairseq.criterions.masked_lm import MaskedLmConfig, MaskedLmLoss
from fairseq.criterions.sentence_prediction import (
    SentencePredictionConfig,
    SentencePredictionCriterion,
)
from fairseq.data import Dictionary
from fairseq.models import ARCH_CONFIG_REGISTRY, build_model
from torch import nn

from fairseq_mhe.common.errors import ErrorExit
from fairseq_mhe.embeddings import HASHED, HASHES, HashedEmbedding
from fairseq_mhe.models.rows import training_flags
from fairseq_mhe.models.shuffle_random import ThreeClasses
from tests.embeddings.test_hashes import dictionary
from tests.fixtures.language import (
    LM,
    ROBERTA,
    SIZES,
    language_options,
    make_language_model,
    sentences,
)
from tests.fixtures.models import logits, make_batch, make_model, same_hypotheses

WORDLESS = sorted(set(HASHED) - {"hash_emb"})


def make_roberta(words: Dictionary, seed: int = 1, **options: Any) -> nn.Module:
    torch.manual_seed(seed)
    task = SimpleNamespace(source_dictionary=words)
    return build_model(argparse.Namespace(**language_options(ROBERTA[0], **options)), task).eval()


@pytest.mark.parametrize("kind", sorted(HASHED))
@pytest.mark.parametrize("name", sorted(HASHES))
def test_words_never_seen_are_read(kind: str, name: str) -> None:
    """A trained model takes another dictionary, all of it: weights know no words."""
    chosen = {"embedding": kind, "hash": name, "attention": "mhe_mul"}
    trained = make_roberta(dictionary("the", "house", "<mask>"), **chosen)
    other = make_roberta(dictionary("zebra", "house", "again", "<mask>"), seed=2, **chosen)
    other.load_state_dict(trained.state_dict())
    with torch.inference_mode():
        known = trained(torch.tensor([[0, 5, 2]]), features_only=True)[0]
        same = other(torch.tensor([[0, 5, 2]]), features_only=True)[0]
        unseen, unknown = (
            other(torch.tensor([[0, token, 2]]), features_only=True)[0] for token in (4, 3)
        )
    torch.testing.assert_close(same, known, rtol=0, atol=1e-6)
    assert (unseen - unknown).abs().max() > 1e-3
    assert (unseen - known).abs().max() > 1e-3


@pytest.mark.parametrize("kind", WORDLESS)
def test_no_weight_belongs_to_a_word(kind: str) -> None:
    few, many = (
        make_roberta(dictionary(*map(str, range(count))), embedding=kind) for count in (3, 300)
    )
    shapes = [{n: v.shape for n, v in model.state_dict().items()} for model in (few, many)]
    assert shapes[0] == shapes[1]
    assert isinstance(few.encoder.lm_head, ThreeClasses)
    assert few(sentences(count=1)[:, :2].clamp(max=6))[0].shape == (1, 2, 3)


@pytest.mark.parametrize("kind", ["table", "hash_emb", "hash_add", "hash_pool"])
def test_scaled_embeddings_are_times_the_root_of_the_width(kind: str) -> None:
    """Weights that much larger give the same without; of hash_proj their length says nothing."""
    options = {"embedding": kind, "objective": "shuffle_random"}
    words = dictionary("hello", "world", "<mask>")
    plain, scaled = (make_roberta(words, scale_embedding=on, **options) for on in (False, True))
    tokens = torch.tensor([[0, 4, 5, 3, 2]])
    assert not scaled(tokens)[0].allclose(plain(tokens)[0], atol=1e-3)
    with torch.no_grad():
        for name, weight in plain.encoder.sentence_encoder.embed_tokens.named_parameters():
            if name != "mixing":
                weight.mul_(math.sqrt(SIZES["embed_dim"]))
    torch.testing.assert_close(scaled(tokens)[0], plain(tokens)[0], rtol=1e-5, atol=1e-6)


def test_hash_emb_predicts_the_rows_of_words() -> None:
    """fairseq's masked_lm: the output is tied to the rows, and a word's target is its own."""
    words = dictionary("hello", "world", "<mask>")
    model = make_roberta(words, embedding="hash_emb", dropout=0.0)
    assert model.encoder.lm_head.weight is model.encoder.sentence_encoder.embed_tokens.table.weight
    tokens, target = torch.tensor([[0, 6, 5, 2]]), torch.tensor([[1, 4, 1, 1]])
    sample = {"net_input": {"src_tokens": tokens}, "target": target, "ntokens": 4, "nsentences": 1}
    task = SimpleNamespace(target_dictionary=words)
    loss, count, _ = MaskedLmLoss(MaskedLmConfig(tpu=False), task)(model, sample)
    logits = model(tokens)[0]
    assert logits.shape == (1, 4, 50_265)
    assert count == 1
    expected = -logits[0, 1].log_softmax(0)[46797]  # the known row of "hello"
    torch.testing.assert_close(loss, expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(
    ("classes", "target"), [(1, torch.tensor([1.5, 3.0])), (10, torch.tensor([3, 7]))]
)
def test_a_tasks_targets_are_no_words(classes: int, target: torch.Tensor) -> None:
    """fairseq's sentence_prediction asks the model for them, too."""
    words = dictionary("hello", "world", "<mask>")
    task = SimpleNamespace(label_dictionary=None)
    config = SentencePredictionConfig(regression_target=classes == 1)
    sample = {"net_input": {"src_tokens": torch.tensor([[0, 5, 2], [0, 4, 2]])}, "target": target}
    model = make_roberta(words, embedding="hash_emb", dropout=0.0)
    model.register_classification_head("sentence_classification_head", num_classes=classes)
    criterion = SentencePredictionCriterion(config, task)
    loss = criterion(model.eval(), {**sample, "ntokens": 6, "nsentences": 2})[0]
    said = model(
        **sample["net_input"],
        features_only=True,
        classification_head_name="sentence_classification_head",
    )[0]
    if classes == 1:
        expected = (said.view(-1) - target).square().sum()
    else:
        expected = -said.log_softmax(-1)[[0, 1], target].sum()
    torch.testing.assert_close(loss, expected)


def test_a_table_and_its_output_take_further_words_as_unknown_ones() -> None:
    smaller = make_roberta(dictionary("hello", "world", "<mask>"))
    state = {name: value.clone() for name, value in smaller.state_dict().items()}
    words = dictionary("hello", "world", "zebra", "quagga", "<mask>")
    larger = make_roberta(words, further_words=True)
    larger.load_state_dict(state)
    before = smaller(torch.tensor([[0, 4, 3, 3, 6, 2]]))[0]
    after = larger(torch.tensor([[0, 4, 6, 7, 8, 2]]))[0]
    torch.testing.assert_close(after[..., [0, 1, 2, 3, 4, 5, 8]], before, rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(after[..., [6, 7]], before[..., [3, 3]], rtol=1e-5, atol=1e-6)
    larger.load_state_dict(larger.state_dict())  # it has them all
    with pytest.raises(ErrorExit, match=r"embed_tokens.weight is \(7, .* in the checkpoint"):
        make_roberta(words).load_state_dict(smaller.state_dict())
    with pytest.raises(ErrorExit, match=r"embed_tokens\.weight is absent in the checkpoint"):
        larger.load_state_dict(make_roberta(words, embedding="hash_emb").state_dict())


def test_flags_build_the_same_model() -> None:
    options = {"arch": "roberta_mhe_tiny", "embedding": "hash_emb", "hash": "lsh"}
    args = argparse.Namespace(**options, objective="shuffle_random", scale_embedding=True)
    ARCH_CONFIG_REGISTRY["roberta_mhe_tiny"](args)
    flags = " ".join(training_flags(vars(args)))
    assert "--embedding hash_emb --hash lsh" in flags
    assert "--objective shuffle_random" in flags
    assert "--scale-embedding" in flags
    usual = argparse.Namespace(arch="roberta_mhe_tiny")
    ARCH_CONFIG_REGISTRY["roberta_mhe_tiny"](usual)
    assert (usual.embedding, usual.objective) == ("table", "masked_lm")
    assert "embedding" not in " ".join(training_flags(vars(usual)))


TIED = {"share_all_embeddings": False, "share_decoder_input_output_embed": True}


@pytest.mark.parametrize("kind", sorted(HASHED))
def test_the_source_in_translation(kind: str) -> None:
    """The target stays a table that is the output's, and gradients reach every parameter."""
    model = make_model(embedding=kind, dropout=0.0, **TIED)
    assert type(model.encoder.embed_tokens) is HASHED[kind]
    assert model.decoder.output_projection.weight is model.decoder.embed_tokens.weight
    model(**make_batch())[0].square().mean().backward()
    for name, parameter in model.named_parameters():
        if "encoder.embed_tokens" in name or "decoder.embed_tokens" in name:
            assert parameter.grad.abs().sum() > 0, name
    again = make_model(seed=2, embedding=kind, dropout=0.0, **TIED)
    again.load_state_dict(model.state_dict())
    assert same_hypotheses(model.eval(), again)


@pytest.mark.parametrize(("dropout", "kept"), [(0.3, 0.9), (0.1, 0.9), (0.05, 0.95), (0.0, 1.0)])
def test_weights_are_dropped_as_in_hashformers_at_most(dropout: float, kept: float) -> None:
    """Of 128 weights equal to 1, an element of a vector counts those that are kept."""
    embedding = make_model(embedding="hash_add", dropout=dropout, **TIED).encoder.embed_tokens
    for parameter in embedding.parameters():
        nn.init.ones_(parameter)
    vector = embedding.train()(make_batch()["src_tokens"][:1, :1]) - 1  # of the symbol "a word"
    counts = vector * math.sqrt(128) * kept  # F.dropout divides by what is kept
    torch.testing.assert_close(counts, counts.round(), rtol=0, atol=1e-3)
    assert counts.mean().item() == pytest.approx(128 * kept, abs=6)
    assert bool((counts.round() < 128).any()) is (kept < 1)


@pytest.mark.parametrize("kind", sorted(HASHED))
def test_before_generation_a_hashed_embedding_becomes_a_table(kind: str) -> None:
    model, fast = (make_model(embedding=kind, dropout=0.1, **TIED) for _ in range(2))
    fast.make_generation_fast_(need_attn=False)
    torch.testing.assert_close(logits(fast), logits(model), rtol=1e-5, atol=1e-6)
    assert not any(isinstance(module, HashedEmbedding) for module in fast.modules())
    assert same_hypotheses(model, fast)
    hashed = model.encoder.embed_tokens
    table = hashed.of_all()
    assert torch.equal(hashed.train().of_all(), table), "a table has no dropout"


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"embedding": "hash"}, "unknown embedding 'hash'; choose one of: table, hash_emb, "),
        ({"embedding": "hash_add", "hash": "md6"}, "unknown hash 'md6'; choose one of: md5, lsh"),
        ({"hash": "md5"}, "--hash md5 has no effect on --embedding table: leave it out"),
        (
            {"embedding": "hash_add", "further_words": True},
            "--further-words has no effect on --embedding hash_add, which knows every word",
        ),
        (
            {"embedding": "hash_add", "objective": "masked_lm"},
            "--embedding hash_add has no output vocabulary, which masked_lm predicts: give --task ",
        ),
    ],
)
def test_what_roberta_cannot_use_is_refused(options: dict[str, str], told: str) -> None:
    with pytest.raises(ErrorExit, match=told):
        make_language_model(ROBERTA[0], **options)
    with pytest.raises(ErrorExit, match=told):
        ARCH_CONFIG_REGISTRY["roberta_mhe_tiny"](argparse.Namespace(**options))


def test_what_other_models_cannot_use_is_refused() -> None:
    with pytest.raises(ErrorExit, match="--embedding hash_emb is for roberta_mhe and the source "):
        make_language_model(LM[0], embedding="hash_emb")
    for name in ("share_all_embeddings", "merge_src_tgt_embed"):
        told = f"--embedding hash_add is the source's alone.* leave --{name.replace('_', '-')} out"
        with pytest.raises(ErrorExit, match=told):
            make_model(embedding="hash_add", **{**TIED, name: True})


def test_masked_lm_on_three_classes_is_refused() -> None:
    model = make_language_model(ROBERTA[0], objective="shuffle_random")
    with pytest.raises(ErrorExit, match="no output vocabulary, which --criterion masked_lm is for"):
        model(sentences(), masked_tokens=sentences().ne(1))
