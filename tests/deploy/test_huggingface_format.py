"""Bundles for transformers: its own classes, without our code, translate like fairseq."""

import importlib
import runpy
import sys
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from fairseq.tasks.translation import TranslationConfig, TranslationTask

from fairseq_mhe.checkpoints.checkpoint import open_source
from fairseq_mhe.deploy.export import export
from fairseq_mhe.deploy.huggingface_format import _generation
from fairseq_mhe.deploy.tokenizer_json import make_tokenizer
from fairseq_mhe.deploy.trained import FairseqEngine, Trained
from fairseq_mhe.deploy.translator import Translator
from fairseq_mhe.models.build import build
from fairseq_mhe.prepare.data_folder import DataFolder
from fairseq_mhe.prepare.text_processing import TextProcessing, normalise
from fairseq_mhe.prepare.tokenise import detokeniser, tokeniser
from fairseq_mhe.runs.decoding import Decoding
from tests.deploy.test_tokenizer_json import Sample, make_sample
from tests.fixtures.checkpoints import flat_options, save, stir
from tests.fixtures.refusals import refuses
from tests.fixtures.text import Pairs

#: Most tokens of a translation. At this limit only fairseq counts the probability of </s>, so beam
#: search may choose another translation there.
LONGEST = 30
DECODING = Decoding(beam=5, lenpen=0.6, max_len_a=0, max_len_b=LONGEST, max_tokens=1000)


@pytest.fixture(scope="module")
def samples(
    tmp_path_factory: pytest.TempPathFactory, corpus: dict[str, Pairs]
) -> dict[str, Sample]:
    kinds = {"bpe": ("bpe",), "sentencepiece": ("sentencepiece", "none")}
    make = tmp_path_factory.mktemp
    return {name: make_sample(make(name), corpus, *kind) for name, kind in kinds.items()}


def make_trained(folder: Path, sample: Sample, **options: Any) -> Trained:
    """Return a random model that can be exported."""
    words = sample.dictionary
    task = TranslationTask(TranslationConfig(), words, words)
    model: Any = stir(build(flat_options(**options), task, seed=1)).eval()
    norm = model.decoder.layer_norm or model.decoder.layers[-1].final_layer_norm
    with torch.no_grad():  # so that translations end
        model.decoder.embed_tokens.weight[words.eos()] += 30 * norm.bias
    source = open_source(save(folder / "model.pt", model, **options))
    data = DataFolder(folder, ("en", "de"), {"steps": {}})
    return Trained(source, sample.text, task, data, DECODING)


def by_transformers(
    text: TextProcessing, tokenizer: Any, model: Any, lines: list[str], **search: Any
) -> list[tuple[str, bool]]:
    """Return each translation, and whether it ended before the limit."""
    translations: list[tuple[str, bool]] = []
    tokens_of, plain = tokeniser(text.tokenizer, "en"), detokeniser(text.tokenizer, "de")
    given = [tokens_of(normalise(line)) for line in lines]
    for start in range(0, len(lines), 50):
        batch = tokenizer(given[start : start + 50], return_tensors="pt", padding=True)
        tokens = model.generate(**batch, **search)  # (B, 1 + T)
        texts = map(plain, tokenizer.batch_decode(tokens, skip_special_tokens=True))
        ended = tokens.ne(tokenizer.pad_token_id).sum(1) < LONGEST  # (B,)
        translations += zip(texts, ended.tolist(), strict=True)
    return translations


def assert_same_logits(trained: Trained, tokenizer: Any, model: Any, lines: list[str]) -> None:
    """Compare the logits at each word; the source serves as the translation, too."""
    _, all_rows = make_tokenizer(trained.text, trained.task.source_dictionary)
    rows = [row for row in all_rows if row is not None]
    tokens = torch.tensor([token for token, row in enumerate(all_rows) if row is not None])
    for line in lines[:6]:
        batch = tokenizer(line, return_tensors="pt")
        ids = batch["input_ids"][0].tolist()
        source = torch.tensor([[all_rows[token] or 3 for token in ids]])  # (1, S), 3 is <unk>
        with torch.inference_mode():
            target = batch["input_ids"].roll(1, 1)  # (1, S): </s> first
            ours = trained.source.model(source, torch.tensor([source.shape[1]]), source.roll(1, 1))
            theirs = model(**batch, decoder_input_ids=target).logits  # (1, S, tokens)
        torch.testing.assert_close(theirs[..., tokens], ours[0][..., rows], atol=1e-4, rtol=1e-4)


@pytest.fixture
def transformers(monkeypatch: pytest.MonkeyPatch) -> Any:
    """The package, as if torchaudio were installed but broken (docs/install.md)."""
    monkeypatch.setitem(sys.modules, "torchaudio", None)
    transformers = importlib.import_module("transformers")
    available = transformers.utils.is_torchaudio_available
    if hasattr(available, "cache_clear"):  # transformers 4.57 asks each time
        available.cache_clear()
    return transformers


@pytest.mark.parametrize(
    ("subword", "pre_norm", "attention"),
    [("bpe", True, "mhe_mul"), ("sentencepiece", False, "mhe_add")],
)
def test_logits_and_translations_equal_fairseqs(
    subword: str,
    pre_norm: bool,
    attention: str,
    samples: dict[str, Sample],
    tmp_path: Path,
    transformers: Any,
    corpus: dict[str, Pairs],
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    norms = {f"{side}_normalize_before": pre_norm for side in ("encoder", "decoder")}
    trained = make_trained(tmp_path, samples[subword], attention=attention, **norms)
    bundle = tmp_path / "bundle"
    export(trained, "huggingface", bundle)
    tokenizer = transformers.AutoTokenizer.from_pretrained(bundle)
    model, problems = transformers.AutoModelForSeq2SeqLM.from_pretrained(
        bundle, output_loading_info=True
    )
    assert not any(problems.values())  # no weight is missing or unused
    lines = [pair[0] for pair in corpus["test"][:120]]
    assert_same_logits(trained, tokenizer, model, lines)
    by_fairseq = Translator(trained, FairseqEngine(trained, "float32", cpu=True)).translate
    translate = partial(by_transformers, trained.text, tokenizer, model)
    greedy = translate(lines, num_beams=1, early_stopping=False)
    pairs = zip(greedy, by_fairseq(lines, beam=1), strict=True)
    # A random model has near ties, which rounding decides.
    assert sum(text == expected for (text, _), expected in pairs) >= 0.95 * len(lines)
    some = lines[:60]
    best, expected = translate(some), by_fairseq(some)
    ended = [index for index, (_, has_ended) in enumerate(best) if has_ended]
    assert len(ended) >= 3
    same = [index for index in ended if best[index][0] == expected[index]]
    assert len(same) >= 0.9 * len(ended)
    # The bundle's example program prints the same translation, and refuses a long line.
    line = lines[same[0]]
    monkeypatch.setattr(sys, "argv", ["example.py", "", line, "lamp " * 1024])
    capsys.readouterr()
    with pytest.raises(SystemExit, match="subwords, the model takes 1024: cut the line"):
        runpy.run_path(str(bundle / "example.py"))
    assert capsys.readouterr().out.splitlines() == by_fairseq(["", line])


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({"share_all_embeddings": False}, "share_all_embeddings"),
        ({"encoder_normalize_before": True}, "encoder_normalize_before"),
        ({"max_target_positions": 20}, "max_source_positions"),
        ({"activation_fn": "linear"}, "'linear'"),
        ({"attention": "mhe_conv"}, "mhe_conv"),
    ],
)
def test_a_model_that_no_class_can_hold_is_refused(
    options: dict[str, Any], named: str, samples: dict[str, Sample], tmp_path: Path
) -> None:
    trained = make_trained(tmp_path, samples["bpe"], **options)
    with refuses(named):
        export(trained, "huggingface", tmp_path / "bundle")


@pytest.mark.parametrize(("a", "b", "longest"), [(0, 12, 13), (0, 50, 19), (1, 5, 19)])
def test_the_length_limit_is_within_the_models_positions(
    a: int, b: int, longest: int, samples: dict[str, Sample], tmp_path: Path
) -> None:
    trained = make_trained(tmp_path, samples["bpe"], max_target_positions=20)
    trained = replace(trained, decoding=replace(DECODING, max_len_a=a, max_len_b=b))
    settings = _generation(trained, {"eos_token_id": 2, "pad_token_id": 1})
    assert settings["max_new_tokens"] == longest
