"""The Translator translates as fairseq-generate did, whatever it is loaded from."""

from __future__ import annotations

import copy
import json
import subprocess
import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from fairseq_mhe.checkpoints.checkpoint import Source
from fairseq_mhe.checkpoints.safe_load import save_checkpoint
from fairseq_mhe.common.checkpoint_files import read_checkpoint
from fairseq_mhe.common.errors import UserError
from fairseq_mhe.deploy import ctranslate2_engine
from fairseq_mhe.deploy.export import export
from fairseq_mhe.deploy.loading import load_parts
from fairseq_mhe.deploy.long_lines import cut
from fairseq_mhe.deploy.translator import LongSentenceError, Translator
from fairseq_mhe.models.packed import Int8Linear
from tests.deploy.conftest import MADE, SOURCES, hypotheses, run_of, trained
from tests.fixtures.processes import python


@pytest.mark.parametrize("kind", ["mha", "mhe_mul"])
def test_a_run_translates_as_fairseq_generate_did(kind: str) -> None:
    found = Translator.load(run_of(kind), data=MADE / "data", engine="fairseq", cpu=True)
    assert found.translate(SOURCES) == hypotheses(kind)


def test_a_bundle_translates_as_its_run(translator: Translator) -> None:
    assert (translator.languages, translator.engine) == (("en", "de"), "fairseq")
    assert translator.translate(SOURCES) == hypotheses("mhe_mul")


def test_a_checkpoint_needs_its_data_folder() -> None:
    checkpoint = run_of("mha") / "model.pt"
    with pytest.raises(UserError, match=r"give the data folder .* \(--data\)"):
        Translator.load(checkpoint)
    assert Translator.load(checkpoint, data=MADE / "data", engine="fairseq").languages


def test_ctranslate2_scores_as_fairseq_does(translator: Translator, exported: Path) -> None:
    pytest.importorskip("ctranslate2", reason="ctranslate2 is not installed")
    other = Translator.load(exported, engine="ctranslate2", cpu=True, threads=1)
    greedy = [each.nbest(SOURCES, 1, beam=1) for each in (translator, other)]
    for (one,), (two,) in zip(*greedy, strict=True):
        assert one.text == two.text
        # The model never comes to an end, whose probability fairseq counts at the limit too.
        assert one.score == pytest.approx(two.score, abs=0.1)


def test_auto_is_ctranslate2_on_a_cpu_where_it_can_be(
    exported: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("ctranslate2", reason="ctranslate2 is not installed")
    made = []
    init = ctranslate2_engine.CTranslate2Engine.__init__

    def counted(*words: Any, **options: Any) -> None:
        made.append(words)
        init(*words, **options)

    with monkeypatch.context() as counting:
        counting.setattr(ctranslate2_engine.CTranslate2Engine, "__init__", counted)
        assert Translator.load(exported, threads=1).engine == "ctranslate2"
    assert torch.cuda.is_available() or len(made) == 1

    def convert(*_: Any) -> None:
        raise UserError("there is no stock form")

    with monkeypatch.context() as without:
        without.setattr(ctranslate2_engine, "convert", convert)
        assert Translator.load(exported, cpu=True).engine == "fairseq"
        with pytest.raises(UserError, match="there is no stock form"):
            Translator.load(exported, engine="ctranslate2", cpu=True)
    monkeypatch.setattr("importlib.util.find_spec", lambda name: name != "ctranslate2" or None)
    assert Translator.load(exported, cpu=True).engine == "fairseq"
    with pytest.raises(UserError, match="ctranslate2 is not installed"):
        Translator.load(exported, engine="ctranslate2", cpu=True)


def test_auto_is_fairseq_where_ctranslate2_is_not_exact(
    exported: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("ctranslate2", reason="ctranslate2 is not installed")
    convert = ctranslate2_engine.convert

    def slightly_wrong(source: Source, *rest: Any) -> None:
        other = copy.deepcopy(source.model)
        with torch.no_grad():
            other.decoder.layers[0].fc2.bias[0] += 0.1  # type: ignore[union-attr, index, operator]
        convert(replace(source, model=other), *rest)

    monkeypatch.setattr(ctranslate2_engine, "convert", slightly_wrong)
    assert Translator.load(exported, cpu=True, threads=1).engine == "fairseq"
    for int8 in (False, True):
        with pytest.raises(
            UserError, match=r"probabilities are not those of .* by 0\.\d+ of their"
        ):
            Translator.load(exported, engine="ctranslate2", int8=int8, cpu=True, threads=1)


@pytest.mark.parametrize(
    ("flags", "exact"),
    [("fma avx2", False), ("avx2 avx512f", False), ("avx2 avx_vnni", True), ("", True)],
)
def test_by_itself_int8_is_not_one_that_may_be_cut_off(
    flags: str, exact: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("ctranslate2", reason="ctranslate2 is not installed")
    monkeypatch.setattr("fairseq_mhe.deploy.loading.cpu_flags", lambda: set(flags.split()))
    for int8 in (False, True):
        found = Translator.load(run_of("mhe_mul"), data=MADE / "data", int8=int8, cpu=True)
        assert found.engine == ("ctranslate2" if exact or not int8 else "fairseq")


def test_int8_is_an_approximation(
    translator: Translator, exported: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fairseq_mhe.models.packed.WORTH_PACKING", 1)  # the model is tiny
    rounded = Translator.load(exported, engine="fairseq", int8=True, cpu=True)
    one, two = (
        [best.score for best, *_ in each.nbest(SOURCES[:3], 1, beam=1)]
        for each in (translator, rounded)
    )
    model: Any = rounded._engine
    assert any(isinstance(part, Int8Linear) for part in model._model.modules())
    assert one == pytest.approx(two, rel=0.2)
    monkeypatch.setattr("fairseq_mhe.models.packed.int8_available", lambda: False)
    with pytest.raises(UserError, match="int8_generation is for a float32 model on an x86"):
        Translator.load(exported, engine="fairseq", int8=True, cpu=True)


def test_what_has_no_text_stays_empty_and_in_its_place(translator: Translator) -> None:
    one, two = translator.translate(SOURCES[:2])
    lines = ["", SOURCES[0], "   ", "\u00a0\t", SOURCES[1], ""]
    assert translator.translate(lines) == ["", one, "", "", two, ""]
    assert translator.translate([]) == []
    assert translator.translate(["", " "]) == ["", ""]


def test_the_best_come_first_with_their_scores(translator: Translator) -> None:
    for found, best in zip(
        translator.nbest(SOURCES[:3], 4), translator.translate(SOURCES[:3]), strict=True
    ):
        assert len(found) == 4
        assert found[0].text == best
        scores = [each.score for each in found]
        assert scores == sorted(scores, reverse=True)
        assert len(set(scores)) == 4
    with pytest.raises(UserError, match="6 translations of a line cannot come of a beam of 5"):
        translator.nbest(SOURCES[:1], 6)


@pytest.fixture(scope="module")
def narrow(exported: Path) -> Translator:
    """A model that takes 150 tokens, and says few."""
    text, engine, decoding, _, name = load_parts(
        exported, None, None, "fairseq", int8=False, cpu=True, threads=None
    )
    few = replace(decoding, max_len_a=0, max_len_b=10)
    return Translator(text, engine, few, (150, 150), name)


def test_a_long_line_is_cut_at_ends_of_sentences_and_nothing_is_lost(narrow: Translator) -> None:
    lengths = [len(subwords) for subwords in narrow._segment(SOURCES)]
    assert max(lengths) < 150 < sum(lengths)
    parts = cut(" ".join(SOURCES), lambda part: len(narrow._segment([part])[0]) <= 149)
    assert " ".join(parts) == " ".join(SOURCES)
    assert 1 < len(parts) < len(SOURCES)
    lines = [SOURCES[0], " ".join(SOURCES), SOURCES[1]]
    first, *found, last = narrow.translate([SOURCES[0], *parts, SOURCES[1]])
    assert narrow.translate(lines) == [first, " ".join(found), last]


def test_a_sentence_that_is_too_long_is_refused_with_its_line(narrow: Translator) -> None:
    with pytest.raises(LongSentenceError, match=r"line 2: a sentence of \d+ subwords, .* 149: br"):
        narrow.translate([SOURCES[0], "word " * 150])


@pytest.mark.parametrize(
    ("line", "longest", "parts"),
    [
        ("One. Two! Three? Four.", 9, ["One. Two!", "Three?", "Four."]),
        ("A 3.5 km walk. Yes.", 14, ["A 3.5 km walk.", "Yes."]),
        ('He said "No." Then he left.', 14, ['He said "No."', "Then he left."]),
        ("\u4e00\u4e8c\u3002\u4e09\u3002", 3, ["\u4e00\u4e8c\u3002", "\u4e09\u3002"]),
        ("Far too long a one. Ok.", 5, ["Far too long a one.", "Ok."]),
        ("Short.", 100, ["Short."]),
    ],
)
def test_lines_are_cut_between_sentences_only(line: str, longest: int, parts: list[str]) -> None:
    assert cut(line, lambda part: len(part.strip()) <= longest) == parts


@pytest.mark.parametrize("engine", ["fairseq", "ctranslate2"])
def test_no_translation_is_longer_than_the_models_positions(tmp_path: Path, engine: str) -> None:
    """The model never comes to an end, and the limit of its decoding is 200 subwords."""
    pytest.importorskip(engine, reason=f"{engine} is not installed")
    state = read_checkpoint(run_of("mhe_mul") / "model.pt")
    state["cfg"]["model"]["max_target_positions"] = 16
    save_checkpoint(state, tmp_path / "few.pt")
    few = {"data": MADE / "data", "engine": engine, "cpu": True, "threads": 1}
    found = Translator.load(tmp_path / "few.pt", **few)
    ((best,),) = found._engine.translate([["the"] * 3], found.decoding, 1)
    assert len(best.subwords.split()) == 15


def test_one_string_is_not_taken_for_its_letters(translator: Translator) -> None:
    with pytest.raises(TypeError, match="a list of lines"):
        translator.translate("Hello.")


def test_several_threads_may_translate(translator: Translator) -> None:
    expected = hypotheses("mhe_mul")[:4]
    found: list[list[str]] = []
    threads = [
        threading.Thread(target=lambda: found.append(translator.translate(SOURCES[:4])))
        for _ in range(3)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 3
    assert all(each == found[0] for each in found)
    assert [line[:20] for line in found[0]] == [line[:20] for line in expected]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ({"direction": "de-en"}, "translates en-de, not de-en"),
        ({"engine": "onnx"}, "unknown engine 'onnx'; choose of: auto, fairseq, ctranslate2"),
        ({"data": MADE / "data"}, "is a bundle, which needs no data folder"),
    ],
)
def test_what_does_not_fit_is_refused(exported: Path, words: dict[str, str], message: str) -> None:
    with pytest.raises(UserError, match=message):
        Translator.load(exported, **words)


def sum_anew(bundle: Path, name: str) -> None:
    """With the checksum that the file has now."""
    sums = subprocess.run(
        ["sha256sum", name], cwd=bundle, capture_output=True, text=True, check=True
    ).stdout
    listed = (bundle / "SHA256SUMS").read_text().splitlines(keepends=True)
    listed = [sums if line.endswith(f" {name}\n") else line for line in listed]
    (bundle / "SHA256SUMS").write_text("".join(listed))


def test_a_vocabulary_that_does_not_fit_ctranslate2s_weights_is_refused(tmp_path: Path) -> None:
    pytest.importorskip("ctranslate2", reason="ctranslate2 is not installed")
    made = tmp_path / "bundle"
    export(replace(trained(), data=None), "ctranslate2", made)
    assert Translator.load(made, cpu=True, threads=1).engine == "ctranslate2"
    words = json.loads((made / "shared_vocabulary.json").read_text(encoding="utf-8"))
    for wrong in (words[:-3], [*words, "one more"]):
        (made / "shared_vocabulary.json").write_text(json.dumps(wrong))
        sum_anew(made, "shared_vocabulary.json")
        with pytest.raises(UserError, match=rf"has {len(wrong)} words, the weights {len(words)}"):
            Translator.load(made, cpu=True, threads=1)


def test_a_dictionary_that_does_not_fit_the_weights_is_refused(bundle: Path) -> None:
    lines = (bundle / "dict.de.txt").read_text().splitlines(keepends=True)
    (bundle / "dict.de.txt").write_text("".join(lines[:-3]))
    sum_anew(bundle, "dict.de.txt")
    with pytest.raises(UserError, match=r"the target's dictionary in .* has \d+ words, the weight"):
        Translator.load(bundle, engine="fairseq")


_IMPORT = """
import logging, sys, warnings

def state():
    root = logging.root
    return list(warnings.filters), list(root.handlers), root.level, root.manager.disable

before = state()
import fairseq_mhe
assert state() == before
found = fairseq_mhe.Translator.load(sys.argv[1], engine="fairseq", cpu=True)
found.translate(["A lamp."])
assert state() == before
"""


def test_a_host_program_keeps_its_logging_and_warnings(exported: Path) -> None:
    done = python(_IMPORT, exported)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
