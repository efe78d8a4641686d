"""Bundles for transformers translate by `translate` and `Translator` as by fairseq."""

from __future__ import annotations

import importlib.util
import json
import logging
import shutil
import warnings
from pathlib import Path
from typing import Any

import pytest

from fairseq_mhe import cli
from fairseq_mhe.common.errors import UserError
from fairseq_mhe.deploy import huggingface_engine
from fairseq_mhe.deploy.bundle import open_bundle, seal
from fairseq_mhe.deploy.export import export
from fairseq_mhe.deploy.huggingface_engine import HuggingFaceEngine
from fairseq_mhe.deploy.translator import LongSentenceError, Translator
from tests.deploy.conftest import SOURCES, hypotheses, trained


def state() -> tuple[Any, ...]:
    """What a program may have set, but for what packages say of messages of their own."""
    root = logging.root
    filters = [each for each in warnings.filters if each[2] in (Warning, UserWarning)]
    return filters, list(root.handlers), root.level, root.manager.disable


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A bundle, which no test writes in."""
    for package in ("tokenizers", "safetensors"):
        pytest.importorskip(package, reason=f"{package} is not installed")
    if importlib.util.find_spec("transformers") is None:
        pytest.skip("transformers is not installed: pip install 'fairseq-mhe[huggingface]'")
    made = tmp_path_factory.mktemp("bundles") / "for transformers"
    export(trained(), "huggingface", made)
    return made


@pytest.fixture(scope="module")
def theirs(folder: Path) -> Translator:
    return Translator.load(folder, cpu=True)


@pytest.fixture
def own(folder: Path, tmp_path: Path) -> Path:
    """A bundle of one's own."""
    return Path(shutil.copytree(folder, tmp_path / "my bundle"))


def sealed_again(bundle: Path) -> None:
    """With checksums of what is there now."""
    config = {name: value for name, value in open_config(bundle).items() if name != "bundle"}
    (bundle / "SHA256SUMS").unlink()
    seal(bundle, config)


def open_config(bundle: Path) -> dict[str, Any]:
    return json.loads((bundle / "bundle.json").read_text(encoding="utf-8"))


@pytest.mark.parametrize("beam", [1, 5])
def test_it_translates_and_scores_as_fairseq_does(
    theirs: Translator, translator: Translator, beam: int
) -> None:
    # Hardly trained, the model repeats itself up to fairseq's limit: that is met too.
    assert (theirs.languages, theirs.engine) == (("en", "de"), "huggingface")
    lines = ["", *SOURCES]
    found, expected = (each.nbest(lines, 1, beam=beam) for each in (theirs, translator))
    assert [best.text for best, *_ in found] == [best.text for best, *_ in expected]
    scores = [best.score for best, *_ in expected]
    assert [best.score for best, *_ in found] == pytest.approx(scores, abs=1e-5)
    if beam == 5:
        assert [best.text for best, *_ in found] == ["", *hypotheses("mhe_mul")]


def test_the_best_come_first_with_their_scores(theirs: Translator, translator: Translator) -> None:
    some = SOURCES[:2]
    found, expected = (each.nbest(some, 4, beam=4) for each in (theirs, translator))
    for ours, others in zip(found, expected, strict=True):
        scores = [each.score for each in ours]
        assert scores == sorted(scores, reverse=True)
        assert len({each.text for each in ours}) == 4
        assert ours[0].text == others[0].text
        assert ours[0].score == pytest.approx(others[0].score, abs=1e-5)


def test_a_model_of_ours_is_converted(exported: Path, translator: Translator) -> None:
    found = Translator.load(exported, engine="huggingface", cpu=True)
    assert found.engine == "huggingface"
    assert found.translate(SOURCES[:2]) == translator.translate(SOURCES[:2])


def test_int8_is_an_approximation(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fairseq_mhe.models.packed.WORTH_PACKING", 1)  # the model is tiny
    rounded = Translator.load(folder, int8=True, cpu=True)
    scores = [
        [best.score for best, *_ in each.nbest(SOURCES[:4], 1, beam=1)]
        for each in (rounded, Translator.load(folder, cpu=True))
    ]
    assert scores[0] != scores[1]
    assert scores[0] == pytest.approx(scores[1], rel=0.2)
    monkeypatch.setattr(huggingface_engine, "int8_available", lambda: False)
    with pytest.raises(UserError, match="int8 is for an x86 processor"):
        Translator.load(folder, int8=True, cpu=True)


def test_the_command_takes_it_and_refuses_what_is_too_long(
    folder: Path, translator: Translator, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text, long = tmp_path / "text", tmp_path / "long"
    text.write_text(f"{SOURCES[0]}\n\n", encoding="utf-8")
    assert cli.main(["translate", str(folder), str(text), "--cpu"]) == 0
    expected = translator.translate(SOURCES[:1])
    assert capsys.readouterr() == (f"{expected[0]}\n\n", "")
    long.write_text("word " * 1200)
    assert cli.main(["translate", str(folder), str(long), "--engine", "huggingface"]) == 2
    assert "long, line 1: a sentence of 3,600 subwords" in capsys.readouterr().err


def test_a_long_sentence_is_refused_by_name(theirs: Translator) -> None:
    with pytest.raises(LongSentenceError, match="line 2"):
        theirs.translate(["A lamp.", "word " * 1200])


@pytest.mark.parametrize(
    ("engine", "message"),
    [
        ("fairseq", "is a bundle for huggingface, which 'fairseq' does not read"),
        ("ctranslate2", "is a bundle for huggingface, which 'ctranslate2' does not read"),
    ],
)
def test_another_engine_does_not_read_it(folder: Path, engine: str, message: str) -> None:
    with pytest.raises(UserError, match=message):
        Translator.load(folder, engine=engine)


def test_without_transformers_it_says_what_to_install(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = importlib.util.find_spec

    def without(name: str) -> Any:
        return None if name == "transformers" else found(name)

    monkeypatch.setattr(importlib.util, "find_spec", without)
    words = r"transformers is not installed: pip install 'fairseq-mhe\[huggingface\]'"
    with pytest.raises(UserError, match=words):
        Translator.load(folder)


def test_weights_of_another_model_are_refused(own: Path) -> None:
    config = json.loads((own / "config.json").read_text(encoding="utf-8"))
    changes = {"encoder_layers": 0, "decoder_layers": 9, "decoder_ffn_dim": 8, "model_type": "none"}
    for name, value in changes.items():
        (own / "config.json").write_text(json.dumps({**config, name: value}))
        sealed_again(own)
        with pytest.raises(
            UserError, match=r"transformers cannot load|weights in .* do not fit"
        ) as told:
            Translator.load(own)
        assert "\n" not in str(told.value)


def test_code_in_a_bundle_is_not_run(own: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """transformers would ask whether it may, and take a line of the text for the answer."""
    config = json.loads((own / "config.json").read_text(encoding="utf-8"))
    config |= {"model_type": "evil", "auto_map": {"AutoConfig": "evil.EvilConfig"}}
    (own / "config.json").write_text(json.dumps(config))
    (own / "evil.py").write_text(f"open({str(own / 'ran')!r}, 'w')\n")
    sealed_again(own)
    asked: list[str] = []
    monkeypatch.setattr("builtins.input", lambda prompt: asked.append(prompt) or "y")
    with pytest.raises(UserError, match="transformers cannot load"):
        Translator.load(own)
    assert not asked
    assert not (own / "ran").exists()


def test_a_tokenizer_that_does_not_fit_the_weights_is_refused(own: Path) -> None:
    path = own / "tokenizer.json"
    tokenizer = json.loads(path.read_text(encoding="utf-8"))
    words = tokenizer["model"]["vocab"]
    words["one more"] = len(words)
    path.write_text(json.dumps(tokenizer))
    sealed_again(own)
    with pytest.raises(UserError, match=r"tokenizer\.json in .* has \d+ words, the weights \d+"):
        Translator.load(own)
    path.write_text("{}")
    sealed_again(own)
    with pytest.raises(UserError, match=r"tokenizer\.json cannot be read: .*; get the bundle"):
        Translator.load(own)


def test_a_format_of_later_is_refused(own: Path) -> None:
    config = open_config(own)
    (own / "bundle.json").write_text(json.dumps({**config, "format": "later"}))
    sealed_again(own)
    with pytest.raises(
        UserError, match="a bundle for 'later', which this fairseq-mhe does not kno"
    ):
        Translator.load(own)


def test_a_file_that_is_missing_or_changed_is_named(own: Path) -> None:
    path = own / "generation_config.json"
    path.write_text("{}")
    with pytest.raises(UserError, match=r"generation_config\.json is not the file that was export"):
        Translator.load(own)
    path.unlink()
    with pytest.raises(UserError, match=r"generation_config\.json is missing from the bundle"):
        Translator.load(own)


def test_the_engine_reads_no_settings_of_generation(own: Path, theirs: Translator) -> None:
    """A limit there does not cut what the command's options allow."""
    path = own / "generation_config.json"
    settings = json.loads(path.read_text(encoding="utf-8"))
    path.write_text(json.dumps({**settings, "max_new_tokens": 3, "num_beams": 2}))
    sealed_again(own)
    bundle, before = open_bundle(own), state()
    engine = HuggingFaceEngine(own, bundle.text.model.kind, bundle.positions[1], cpu=True)
    again = Translator(bundle.text, engine, bundle.decoding, bundle.positions, "again")
    assert again.translate(SOURCES[:2]) == theirs.translate(SOURCES[:2])
    assert state() == before
