"""The Translator, loaded from a run, checkpoint or bundle, translates like fairseq-generate."""

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest

from fairseq_mhe.attention import KINDS
from fairseq_mhe.checkpoints.checkpoint import save_checkpoint
from fairseq_mhe.common.checkpoint_files import read_checkpoint
from fairseq_mhe.convert import to_ctranslate2
from fairseq_mhe.deploy import ctranslate2_engine, trained
from fairseq_mhe.deploy.bundle import open_bundle
from fairseq_mhe.deploy.long_lines import cut, sentences
from fairseq_mhe.deploy.translator import Translation, Translator
from fairseq_mhe.models import packed
from tests.deploy.conftest import BRIEF, SOURCES, hypotheses
from tests.fixtures.processes import python
from tests.fixtures.refusals import refuses
from tests.fixtures.small_runs import SMALL, run_of

Patch = pytest.MonkeyPatch


def load(bundle: Path, **options: Any) -> Translator:
    return Translator.load(bundle, **{"cpu": True, "threads": 1} | options)


def test_a_run_and_a_bundle_translate_like_fairseq_generate(translator: Translator) -> None:
    run = Translator.load(run_of("mha"), data=SMALL / "data", engine="fairseq", cpu=True)
    assert run.translate(SOURCES) == hypotheses("mha")
    assert (translator.languages, translator.engine) == (("en", "de"), "fairseq")
    assert translator.translate(SOURCES) == hypotheses("mhe_mul")


def test_ctranslate2_ranks_and_scores_like_fairseq_at_the_length_limit(tmp_path: Path) -> None:
    """The model never predicts </s>; its new bias ends some hypotheses before the limit."""
    state = read_checkpoint(run_of("mhe_mul") / "model.pt")
    weights = state["model"]
    weights["decoder.layer_norm.bias"] += 3 * weights["decoder.embed_tokens.weight"][2]
    save_checkpoint(state, tmp_path / "ends.pt")
    results = []
    for engine in ("fairseq", "ctranslate2"):
        ends = load(tmp_path / "ends.pt", data=SMALL / "data", engine=engine)
        ends.decoding = replace(ends.decoding, lenpen=0.5, **BRIEF)
        results.append(ends.nbest(SOURCES, 1))
    for (expected,), (translation,) in zip(*results, strict=True):
        assert translation == (expected.text, pytest.approx(expected.score, rel=0.01))


def test_auto_chooses_ctranslate2_on_a_cpu_if_possible(
    exported: Path, tmp_path: Path, monkeypatch: Patch
) -> None:
    assert load(exported).engine == "ctranslate2"
    with monkeypatch.context() as wrong:
        wrong.setenv("XDG_CACHE_HOME", str(tmp_path))
        wrong.setattr(to_ctranslate2, "compare_probabilities", lambda *_: 0.01)
        assert load(exported).engine == "fairseq"
        for precision in ("float32", "int8"):
            with refuses("are not those of", "0.01"):
                load(exported, engine="ctranslate2", precision=precision)
    monkeypatch.setattr("importlib.util.find_spec", lambda name: name != "ctranslate2" or None)
    assert load(exported).engine == "fairseq"
    with refuses("ctranslate2 is not installed"):
        load(exported, engine="ctranslate2")


def test_auto_converts_a_model_once(exported: Path, tmp_path: Path, monkeypatch: Patch) -> None:
    conversions = Mock(side_effect=trained.write_ctranslate2)
    monkeypatch.setattr(trained, "write_ctranslate2", conversions)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    expected = load(exported).translate(SOURCES)
    assert load(exported).translate(SOURCES) == expected
    assert conversions.call_count == 1
    load(run_of("mha"), data=SMALL / "data")
    assert conversions.call_count == 2, "the run has another model"
    for path in tmp_path.rglob("model.bin"):
        path.write_bytes(bytes(9000))
    assert load(exported).translate(SOURCES) == expected
    assert conversions.call_count == 3, "what is kept is damaged"
    nowhere = tmp_path / "a file"
    nowhere.touch()
    monkeypatch.setenv("XDG_CACHE_HOME", str(nowhere))
    assert load(exported).engine == "ctranslate2"


def test_a_users_own_kind_is_converted_at_each_load(
    exported: Path, tmp_path: Path, monkeypatch: Patch
) -> None:
    """After a change of its class a kept conversion would go on to translate as before."""

    class Own(KINDS["mhe_mul"]):  # type: ignore[misc]
        plain_heads = KINDS["mhe_mul"].plain_heads

    conversions = Mock(side_effect=trained.write_ctranslate2)
    monkeypatch.setattr(trained, "write_ctranslate2", conversions)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setitem(KINDS, "mhe_mul", Own)
    assert [load(exported).engine, load(exported).engine] == ["ctranslate2"] * 2
    assert conversions.call_count == 2


@pytest.mark.parametrize(
    ("flags", "exact"), [("fma avx2", False), ("avx2 avx_vnni", True), ("", True)]
)
def test_auto_avoids_ctranslate2s_int8_without_vnni(
    flags: str, exact: bool, exported: Path, monkeypatch: Patch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(ctranslate2_engine, "cpu_flags", lambda: set(flags.split()))
    assert load(exported).engine == "ctranslate2"
    assert load(exported, precision="int8").engine == ("ctranslate2" if exact else "fairseq")
    assert "VNNI" not in capsys.readouterr().err
    load(exported, engine="ctranslate2", precision="int8")
    assert ("VNNI" in capsys.readouterr().err) is not exact


@pytest.mark.parametrize(
    ("precision", "engine", "named"),
    [
        ("bf16", "ctranslate2", "bf16"),
        ("fp32", "auto", "fp32"),
        ("fp16", "ctranslate2", "float16"),
        ("int8", "fairseq", "int8"),
    ],
)
def test_unsupported_precisions_are_refused(
    precision: str, engine: str, named: str, exported: Path, monkeypatch: Patch
) -> None:
    monkeypatch.setattr(packed, "int8_available", lambda: False)
    with refuses(named):
        load(exported, precision=precision, engine=engine)


def test_lines_without_text_stay_empty_and_in_order(translator: Translator) -> None:
    first, second = translator.translate(SOURCES[:2])
    lines = ["", SOURCES[0], "   ", "\u00a0\t", SOURCES[1], ""]
    assert translator.translate(lines) == ["", first, "", "", second, ""]
    assert translator.translate([]) == []
    assert translator.nbest([""], 3) == [[Translation("", 0.0)] * 3]


@pytest.fixture(scope="module")
def narrow(translator: Translator, exported: Path) -> Translator:
    """A translator of at most 150 source tokens and 10 target tokens."""
    brief = replace(translator.decoding, **BRIEF)
    model = replace(open_bundle(exported), decoding=brief, positions=(150, 150))
    return Translator(model, translator._engine)


def test_a_long_line_is_translated_in_parts_with_a_warning_if_a_sentence_is_cut(
    narrow: Translator,
) -> None:
    lines = [SOURCES[0], " ".join(SOURCES), ("word " * 60).strip()]
    with pytest.warns(UserWarning, match="line 3: a sentence is too long and was cut"):
        translations = narrow.nbest(lines, 1)
    for line, (translation,) in zip(lines, translations, strict=True):
        parts, sentence_cut = cut(line, "en", lambda part: len(narrow._segment([part])[0]) <= 149)
        assert " ".join(parts) == line
        of_parts = [best for (best,) in narrow.nbest(parts, 1)]
        assert translation.text == " ".join(best.text for best in of_parts)
        assert translation.score == pytest.approx(sum(best.score for best in of_parts))
        assert sentence_cut is (line == lines[2])


@pytest.mark.parametrize(
    ("line", "longest", "parts", "sentence_cut"),
    [
        ("One. Two! Three? Four.", 9, ["One. Two!", "Three?", "Four."], False),
        ('He said "No." Then he left.', 14, ['He said "No."', "Then he left."], False),
        ("「一二。」三。", 5, ["「一二。」", "三。"], False),
        ("यह है। वह है।", 8, ["यह है।", "वह है।"], False),
        ("Far too long a one. Ok.", 9, ["Far too", "long a", "one.", "Ok."], True),
        ("ab cdefghij kl", 4, ["ab", "cdef", "ghij", "kl"], True),
        ("e\u0301e\u0301e\u0301", 3, ["e\u0301", "e\u0301", "e\u0301"], True),
    ],
)
def test_lines_are_cut_between_sentences_or_else_at_spaces_or_characters(
    line: str, longest: int, parts: list[str], sentence_cut: bool
) -> None:
    assert cut(line, "en", lambda part: len(part.strip()) <= longest) == (parts, sentence_cut)


@pytest.mark.parametrize(
    ("line", "language", "expected"),
    [
        ("Mr. Smith left. He ran.", "en", ["Mr. Smith left.", "He ran."]),
        ("See No. 5 today. Then go.", "en", ["See No. 5 today.", "Then go."]),
        ("I said no. Now go.", "en", ["I said no.", "Now go."]),
        ("Das ist z. B. gut. Ja.", "de", ["Das ist z. B. gut.", "Ja."]),
        ("One", "xx", ["One"]),
        ("", "en", []),
    ],
)
def test_sentences_do_not_end_after_abbreviations(
    line: str, language: str, expected: list[str]
) -> None:
    assert sentences(line, language) == expected


def test_a_paragraph_is_translated_by_sentences_or_told(exported: Path) -> None:
    translator = load(exported, engine="fairseq")
    paragraph = " ".join(SOURCES[:4])
    parts = sentences(paragraph, "en")
    assert len(parts) >= 3
    by_itself = translator.translate(parts)
    assert translator.translate([paragraph], sentences=True) == [" ".join(by_itself)]
    with pytest.warns(UserWarning, match=r"line 2: .*--sentences"):
        translator.translate(["A lamp.", paragraph, paragraph])


@pytest.mark.parametrize("engine", ["fairseq", "ctranslate2"])
def test_no_translation_exceeds_the_models_positions(tmp_path: Path, engine: str) -> None:
    """The model never predicts </s>, and its decoding allows 200 subwords."""
    state = read_checkpoint(run_of("mhe_mul") / "model.pt")
    state["cfg"]["model"]["max_target_positions"] = 16
    save_checkpoint(state, tmp_path / "few.pt")
    few = load(tmp_path / "few.pt", data=SMALL / "data", engine=engine)
    (((subwords, _),),) = few._engine.translate([["the"] * 3], few.decoding, 1)
    assert len(subwords.split()) == 15


@pytest.mark.parametrize("engine", ["fairseq", "auto"])
def test_weights_that_are_finite_but_huge_are_named(tmp_path: Path, engine: str) -> None:
    state = read_checkpoint(run_of("mhe_mul") / "model.pt")
    state["model"] = {name: 1e30 * weight for name, weight in state["model"].items()}
    save_checkpoint(state, tmp_path / "huge.pt")
    huge = load(tmp_path / "huge.pt", data=SMALL / "data", engine=engine)
    with refuses("not finite"):
        huge.translate(SOURCES[:1])


def test_several_threads_may_share_a_translator(narrow: Translator) -> None:
    expected = narrow.translate(SOURCES)
    with ThreadPoolExecutor(3) as threads:
        results = list(threads.map(narrow.translate, [SOURCES] * 3))
    assert results == [expected] * 3


_HOST = """
import logging, sys, warnings

def state():
    root = logging.root
    return list(warnings.filters), list(root.handlers), root.level, root.manager.disable

logging.basicConfig(level=logging.ERROR)
before = state()
sys.modules["torch._dynamo"] = None  # torch's compiler takes a second to load
import fairseq_mhe
assert state() == before
translator = fairseq_mhe.Translator.load(sys.argv[1], engine="fairseq", cpu=True)
translator.translate(["A lamp."])
assert state() == before
"""


def test_a_host_program_keeps_its_logging_and_warnings(exported: Path) -> None:
    done = python(_HOST, exported)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
