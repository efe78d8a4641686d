"""The Translator translates as fairseq-generate did, whatever it is loaded from."""

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import ctranslate2
import pytest
import torch

from fairseq_mhe.checkpoints.checkpoint import save_checkpoint
from fairseq_mhe.common.checkpoint_files import read_checkpoint
from fairseq_mhe.common.errors import UserError
from fairseq_mhe.deploy import trained
from fairseq_mhe.deploy.bundle import open_bundle
from fairseq_mhe.deploy.long_lines import cut
from fairseq_mhe.deploy.translator import Translation, Translator
from fairseq_mhe.models import packed
from tests.deploy.conftest import BRIEF, SOURCES, hypotheses
from tests.fixtures.processes import python
from tests.fixtures.small_runs import MADE, run_of


def load(bundle: Path, **options: Any) -> Translator:
    return Translator.load(bundle, cpu=True, threads=1, **options)


def test_a_run_and_a_bundle_translate_as_fairseq_generate_did(translator: Translator) -> None:
    run = Translator.load(run_of("mha"), data=MADE / "data", engine="fairseq", cpu=True)
    assert run.translate(SOURCES) == hypotheses("mha")
    assert (translator.languages, translator.engine) == (("en", "de"), "fairseq")
    assert translator.translate(SOURCES) == hypotheses("mhe_mul")


def test_ctranslate2_scores_as_fairseq_does(translator: Translator, exported: Path) -> None:
    other = load(exported, engine="ctranslate2")
    penalty = replace(translator.decoding, lenpen=0.5)
    model = replace(open_bundle(exported), decoding=penalty)
    both = (Translator(model, each._engine) for each in (translator, other))
    greedy = [each.nbest(SOURCES, 1, beam=1) for each in both]
    for (one,), (two,) in zip(*greedy, strict=True):
        assert one.text == two.text
        # The model never comes to an end, whose probability fairseq counts at the limit too.
        assert one.score == pytest.approx(two.score, rel=0.1)


def test_auto_is_ctranslate2_on_a_cpu_where_it_can_be(
    exported: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert load(exported).engine == "ctranslate2"
    with monkeypatch.context() as without:
        refuse = Mock(side_effect=UserError("there is no stock form"))
        without.setattr(trained, "convert", refuse)
        assert load(exported).engine == "fairseq"
        with pytest.raises(UserError, match="there is no stock form"):
            load(exported, engine="ctranslate2")
    monkeypatch.setattr("importlib.util.find_spec", lambda name: name != "ctranslate2" or None)
    assert load(exported).engine == "fairseq"
    with pytest.raises(UserError, match="ctranslate2 is not installed"):
        load(exported, engine="ctranslate2")


NO_LIBRARY = RuntimeError("Library libcublas.so.12 is not found")


@pytest.mark.parametrize(
    ("gpus", "fault", "engine"),
    [(1, None, "ctranslate2"), (0, None, "fairseq"), (1, NO_LIBRARY, "fairseq")],
)
def test_auto_is_ctranslate2_on_a_gpu_that_it_can_use(
    exported: Path, gpus: int, fault: Exception | None, engine: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The GPU is a fake, in whose place the CPU computes."""
    make, by_fairseq = ctranslate2.Translator, trained.FairseqEngine
    devices = []

    def translator(folder: str, device: str, **options: Any) -> Any:
        devices.append(device)
        if device == "cuda" and fault:
            return Mock(**{"translate_batch.side_effect": fault})
        return make(folder, device="cpu", **options)

    def on_the_cpu(trained: Any, precision: str, cpu: bool) -> Any:
        return by_fairseq(trained, precision, cpu=True)

    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(ctranslate2, "get_cuda_device_count", lambda: gpus)
    monkeypatch.setattr(ctranslate2, "Translator", translator)
    monkeypatch.setattr(trained, "FairseqEngine", on_the_cpu)
    assert Translator.load(exported, threads=1).engine == engine
    assert devices == (["cpu", "cuda"] if gpus else [])


def test_auto_is_fairseq_where_ctranslate2_is_not_exact(
    exported: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folded = trained.folded_parameters

    def slightly_wrong(model: Any) -> Any:
        weights, name = folded(model), "decoder.layers.0.fc2.bias"
        wrong = weights[name].clone()
        wrong[0] += 0.1
        return {**weights, name: wrong}

    monkeypatch.setattr(trained, "folded_parameters", slightly_wrong)
    assert load(exported).engine == "fairseq"
    for precision in ("float32", "int8"):
        with pytest.raises(UserError, match=r"probabilities are not those of .* by 0\.\d+ of"):
            load(exported, engine="ctranslate2", precision=precision)


@pytest.mark.parametrize(
    ("flags", "exact"),
    [("fma avx2", False), ("avx2 avx512f", False), ("avx2 avx_vnni", True), ("", True)],
)
def test_by_itself_int8_is_not_one_that_may_be_cut_off(
    flags: str,
    exact: bool,
    exported: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr("fairseq_mhe.common.system.cpu_flags", lambda: set(flags.split()))
    assert load(exported).engine == "ctranslate2"
    assert load(exported, precision="int8").engine == ("ctranslate2" if exact else "fairseq")
    assert "VNNI" not in capsys.readouterr().err
    load(exported, engine="ctranslate2", precision="int8")
    assert ("VNNI" in capsys.readouterr().err) is not exact


@pytest.mark.skipif(not packed.bf16_available(), reason="no AVX-512")
@pytest.mark.parametrize(
    ("options", "tolerance"),
    [({"precision": "bf16"}, 0.02), ({"precision": "int8", "engine": "fairseq"}, 0.2)],
)
def test_smaller_numbers_are_approximations_by_fairseq(
    options: dict[str, Any],
    tolerance: float,
    translator: Translator,
    exported: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(packed, "WORTH_PACKING", 1)  # the model is tiny
    rounded = load(exported, **options)
    assert rounded.engine == "fairseq"
    one, two = (
        [best.score for best, *_ in each.nbest(SOURCES[:3], 1, beam=1)]
        for each in (translator, rounded)
    )
    assert one != two
    assert one == pytest.approx(two, rel=tolerance)


@pytest.mark.parametrize(
    ("precision", "engine", "message"),
    [
        ("bf16", "ctranslate2", "CTranslate2 has no bf16"),
        ("fp16", "auto", "'fp16' is unknown: choose one of float32, bf16, int8, auto"),
        ("int8", "fairseq", "generation in int8 is for a float32 model on an x86"),
    ],
)
def test_numbers_that_there_are_not_are_refused(
    precision: str, engine: str, message: str, exported: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(packed, "int8_available", lambda: False)
    with pytest.raises(UserError, match=message):
        load(exported, precision=precision, engine=engine)


def test_what_has_no_text_stays_empty_and_in_its_place(translator: Translator) -> None:
    one, two = translator.translate(SOURCES[:2])
    lines = ["", SOURCES[0], "   ", "\u00a0\t", SOURCES[1], ""]
    assert translator.translate(lines) == ["", one, "", "", two, ""]
    assert translator.translate([]) == []
    assert translator.nbest([""], 3) == [[Translation("", 0.0)] * 3]


def test_the_best_come_first_with_their_scores(translator: Translator) -> None:
    best = translator.translate(SOURCES[:3])
    for line, found in zip(best, translator.nbest(SOURCES[:3], 4), strict=True):
        assert found[0].text == line
        scores = [each.score for each in found]
        assert scores == sorted(set(scores), reverse=True)
        assert len(scores) == 4
    with pytest.raises(UserError, match="a beam of 5 has no 6 translations"):
        translator.nbest(SOURCES[:1], 6)


@pytest.fixture(scope="module")
def narrow(translator: Translator, exported: Path) -> Translator:
    """A model that takes 150 tokens, and gives few."""
    few = replace(translator.decoding, **BRIEF)
    model = replace(open_bundle(exported), decoding=few, positions=(150, 150))
    return Translator(model, translator._engine)


def test_a_long_line_is_translated_in_parts_with_a_warning_if_a_sentence_is_cut(
    narrow: Translator,
) -> None:
    lines = [SOURCES[0], " ".join(SOURCES), ("word " * 60).strip()]
    with pytest.warns(UserWarning, match="line 3: a sentence is too long and was cut"):
        translations = narrow.nbest(lines, 1)
    for line, (translation,) in zip(lines, translations, strict=True):
        parts, inside = cut(line, lambda part: len(narrow._segment([part])[0]) <= 149)
        assert " ".join(parts) == line
        of_parts = [best for (best,) in narrow.nbest(parts, 1)]
        assert translation.text == " ".join(best.text for best in of_parts)
        assert translation.score == pytest.approx(sum(best.score for best in of_parts))
        assert inside is (line == lines[2])


@pytest.mark.parametrize(
    ("line", "longest", "parts", "inside"),
    [
        ("One. Two! Three? Four.", 9, ["One. Two!", "Three?", "Four."], False),
        ("A 3.5 km walk. Yes.", 14, ["A 3.5 km walk.", "Yes."], False),
        ('He said "No." Then he left.', 14, ['He said "No."', "Then he left."], False),
        ("一二。三。", 3, ["一二。", "三。"], False),
        ("「一二。」三。", 5, ["「一二。」", "三。"], False),
        ("यह है। वह है।", 8, ["यह है।", "वह है।"], False),
        ("أين؟ هنا؟", 5, ["أين؟", "هنا؟"], False),
        ("Short.", 100, ["Short."], False),
        ("Far too long a one. Ok.", 9, ["Far too", "long a", "one.", "Ok."], True),
        ("Incomprehensibly", 7, ["Incompr", "ehensib", "ly"], True),
        ("ab cdefghij kl", 4, ["ab", "cdef", "ghij", "kl"], True),
        ("e\u0301e\u0301e\u0301", 3, ["e\u0301", "e\u0301", "e\u0301"], True),
    ],
)
def test_lines_are_cut_between_sentences_else_at_spaces_or_between_characters(
    line: str, longest: int, parts: list[str], inside: bool
) -> None:
    assert cut(line, lambda part: len(part.strip()) <= longest) == (parts, inside)


@pytest.mark.parametrize("engine", ["fairseq", "ctranslate2"])
def test_no_translation_is_longer_than_the_models_positions(tmp_path: Path, engine: str) -> None:
    """The model never comes to an end, and the limit of its decoding is 200 subwords."""
    state = read_checkpoint(run_of("mhe_mul") / "model.pt")
    state["cfg"]["model"]["max_target_positions"] = 16
    save_checkpoint(state, tmp_path / "few.pt")
    found = load(tmp_path / "few.pt", data=MADE / "data", engine=engine)
    (((subwords, _),),) = found._engine.translate([["the"] * 3], found.decoding, 1)
    assert len(subwords.split()) == 15


@pytest.mark.parametrize("lines", ["Hello.", ["Hello.", 0]])
def test_anything_but_a_list_of_strings_is_a_type_error(translator: Translator, lines: Any) -> None:
    with pytest.raises(TypeError, match="lines is not a list of strings: give a list"):
        translator.translate(lines)


def test_several_threads_may_translate(narrow: Translator) -> None:
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
import fairseq_mhe
assert state() == before
found = fairseq_mhe.Translator.load(sys.argv[1], engine="fairseq", cpu=True)
found.translate(["A lamp."])
assert state() == before
"""


def test_a_host_program_keeps_its_logging_and_warnings(exported: Path) -> None:
    done = python(_HOST, exported)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
