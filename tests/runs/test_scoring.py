"""Scores equal sacreBLEU's own, unequal files are refused."""

import json
import re
import shlex
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from fairseq.data import Dictionary
from fairseq.scoring.bleu import BleuConfig, Scorer
from sacrebleu.metrics import BLEU, CHRF

from fairseq_mhe.common.errors import UserError
from fairseq_mhe.runs.scoring import (
    bleu4,
    bleu_tokeniser,
    described,
    read_aligned,
    read_scores,
    read_tokens,
    read_translations,
    score,
    tokenised_bleu,
    tokeniser_in,
)
from tests.fixtures.translations import BAD, GOOD, REFERENCES, write


def test_scores_and_signatures_are_sacrebleus() -> None:
    scores = score(GOOD, REFERENCES)
    assert scores.sentences == 60
    for found, metric in ((scores.bleu, BLEU()), (scores.chrf, CHRF())):
        assert found.score == pytest.approx(metric.corpus_score(GOOD, [REFERENCES]).score, abs=1e-4)
        assert found.signature == str(metric.get_signature())
        sampled = metric.corpus_score(GOOD, [REFERENCES], n_bootstrap=1000)
        assert found.confidence == pytest.approx(sampled._ci, abs=5e-5)
    assert "tok:13a" in scores.bleu.signature
    assert "version:" in scores.bleu.signature


@pytest.mark.parametrize(
    ("language", "chosen", "expected"),
    [
        *((code, None, "zh") for code in ("zh_CN", "zho_Hans", "yue", "ZH-Hant")),
        *(("ja", "char", "char"), ("tha_Thai", None, "char")),
        *(("de", None, "13a"), (None, None, "13a")),
    ],
)
def test_the_target_language_decides_what_bleu_is_counted_of(
    language: str | None, chosen: str | None, expected: str
) -> None:
    lines = ["今天山里天气很好", "我们一起去看那些花草树木", "他说你好世界然后走了"]
    found = score([lines[0], lines[1], "他说世界然后慢慢走了"], lines, language, chosen)
    assert f"|tok:{expected}|" in found.bleu.signature
    assert tokeniser_in(found.bleu.signature) == expected
    assert (found.bleu.score > 70) == (expected in ("zh", "char"))


@pytest.mark.parametrize(("language", "extra"), [("ja", "ja"), ("kor_Hang", "ko")])
def test_a_missing_dictionary_is_one_line(
    language: str, extra: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def missing(**_: object) -> None:
        raise RuntimeError("\nmany\nlines\n")

    monkeypatch.setattr("fairseq_mhe.runs.scoring.BLEU", missing)
    with pytest.raises(UserError, match=rf"pip install 'sacrebleu\[{extra}\]', or give another"):
        bleu_tokeniser(language)


def test_the_version_in_a_signature_is_not_the_tokenisers_name() -> None:
    assert tokeniser_in("nrefs:1|tok:ja-mecab-0.996-IPA|smooth:exp") == "ja-mecab"


def test_a_perfect_translation_has_no_interval() -> None:
    assert score(REFERENCES, REFERENCES).bleu.confidence == 0


def test_the_fixed_seed_gives_the_same_numbers_each_time() -> None:
    assert score(BAD, REFERENCES) == score(BAD, REFERENCES)


def test_tokenised_bleu_is_the_older_literatures(tmp_path: Path) -> None:
    """Against sacremoses' command, sed for the compounds, and sacreBLEU's command on what comes
    out.
    """
    references = [
        f"Der {i}-Tage-Plan (neu) von bzw. Haus ist gut, aber E-Mail-Adressen fehlen: a-b-c."
        for i in range(12)
    ]
    hypotheses = [
        line.replace("Plan", "Entwurf").replace("bzw.", "bzw")
        if i % 2
        else line.replace("E-", "E ")
        for i, line in enumerate(references)
    ]
    write(tmp_path, ref=references, hyp=hypotheses)
    script = (
        f"{shlex.quote(sys.executable)} -m sacremoses -q -l de tokenize -x < $0 "
        "| sed -E 's/([^ ])-([^ ])/\\1 ##AT##-##AT## \\2/g' > $0.tok"
    )
    for name in ("ref", "hyp"):
        subprocess.run(["bash", "-c", script, name], cwd=tmp_path, check=True, capture_output=True)
    assert "Tage ##AT##-##AT## Plan" in (tmp_path / "ref.tok").read_text()
    command = [
        sys.executable,
        "-m",
        "sacrebleu",
        "ref.tok",
        "-i",
        "hyp.tok",
        "-tok",
        "none",
        "-s",
        "none",
        "--force",
    ]
    theirs = subprocess.run(
        [*command, "-b", "-w", "4"], cwd=tmp_path, capture_output=True, text=True, check=True
    )
    found = tokenised_bleu(hypotheses, references, "de")
    assert found.score == pytest.approx(float(theirs.stdout), abs=1e-3)
    assert "tok:none|smooth:none" in found.signature
    assert score(hypotheses, references).tokenised is None
    assert score(hypotheses, references, "de").tokenised == found
    assert score(hypotheses, references, "zh_CN").tokenised is None, "it has no words"


def test_tokenised_bleu_splits_as_its_language_does() -> None:
    """French keeps l' whole, so that there are three tokens and no 4-gram; German has four."""
    line = ["vers l'homme"]
    assert tokenised_bleu(line, line, "fr").score == 0
    assert tokenised_bleu(line, line, "de").score == 100


def test_scores_are_read_as_they_were_written(tmp_path: Path) -> None:
    for language, given in ((None, None), ("de", None), ("de", bleu4(BAD, REFERENCES))):
        scores = replace(score(BAD, REFERENCES, language), given_tokens=given)
        (tmp_path / "scores.json").write_text(json.dumps(scores.values()))
        assert read_scores(tmp_path / "scores.json") == scores


@pytest.mark.parametrize(("hypotheses", "references"), [(59, 60), (60, 59), (0, 60)])
def test_different_counts_are_refused_with_both_numbers(hypotheses: int, references: int) -> None:
    with pytest.raises(UserError, match=f"{hypotheses} hypotheses but {references} references"):
        score(GOOD[:hypotheses], REFERENCES[:references])


def test_nothing_is_not_scored() -> None:
    with pytest.raises(UserError, match="nothing to score"):
        score([], [])


def test_only_line_feeds_end_lines(tmp_path: Path) -> None:
    path = tmp_path / "f"
    path.write_bytes("a\u2028b\x85\rc\n\nlast".encode())
    assert read_aligned(path, [], "") == [["a\u2028b\x85\rc", "", "last"]]
    path.write_bytes(b"")
    assert read_aligned(path, [], "") == [[]]
    path.write_bytes(b"\n\n")
    assert read_aligned(path, [path], "") == [["", ""]] * 2


def test_invalid_utf_8_and_missing_files_are_named(tmp_path: Path) -> None:
    (tmp_path / "f").write_bytes(b"good\nb\xe4d\n")
    with pytest.raises(UserError, match=r"f, line 2: byte 2 \(0xe4\) is not valid UTF-8"):
        read_aligned(tmp_path / "f", [], "")
    with pytest.raises(UserError, match="cannot read"):
        read_aligned(tmp_path / "none", [], "")


@pytest.mark.parametrize(
    ("hypotheses", "references"),
    [
        (
            ["ein mann mit hut , der geht .", "zwei hunde", "eine frau in rot läuft schnell"],
            ["ein mann mit hut , der steht .", "zwei große hunde", "eine frau läuft schnell"],
        ),
        (["ein mann (mit hut), der geht"], ["ein mann (mit hut), der gerade eben sehr weit geht"]),
        (["ein hund"], ["ein großer hund läuft weg"]),  # no trigram: 0, and a brevity penalty
    ],
)
def test_bleu4_is_fairseqs_own(hypotheses: list[str], references: list[str]) -> None:
    """Against fairseq-generate's scorer, which counts words of a dictionary."""
    words = Dictionary()
    for line in references + hypotheses:
        words.encode_line(line)
    scorer = Scorer(BleuConfig(pad=words.pad(), eos=words.eos(), unk=words.unk()))
    for hypothesis, reference in zip(hypotheses, references, strict=True):
        scorer.add(*(words.encode_line(line).int() for line in (reference, hypothesis)))
    found = bleu4(hypotheses, references)
    assert str(found) == scorer.result_string()
    assert found.brevity_penalty == pytest.approx(scorer.brevity(), abs=1e-6)


def test_each_score_is_told_with_its_meaning() -> None:
    scores = replace(score(BAD, REFERENCES, "de"), given_tokens=bleu4(BAD, REFERENCES))
    bleu, chrf, older, given = described(scores)
    assert bleu == (
        f"BLEU {scores.bleu.score:.2f} ± {scores.bleu.confidence:.2f}  "
        f"({scores.bleu.signature}, 60 sentences)"
    )
    assert chrf.startswith(f"chrF {scores.chrf.score:.2f} ± ")
    assert older.startswith("tokenised, compounds split, as in older papers: ")
    assert given == f"on the tokens of the given text: {scores.given_tokens}"
    assert len(described(score(BAD, REFERENCES))) == 2


def test_a_translated_set_is_read_in_its_three_texts(tmp_path: Path) -> None:
    write(tmp_path, **{"references.txt": ["r"], "sources.txt": ["s"], "hypotheses.txt": ["h"]})
    texts = {"references": ["r"], "sources": ["s"], "hypotheses": ["h"]}
    assert read_translations(tmp_path) == texts
    assert read_tokens(tmp_path) is None
    write(tmp_path, **{"references.tokens.txt": ["rt"], "hypotheses.tokens.txt": ["ht"]})
    assert read_tokens(tmp_path) == [["ht"], ["rt"]]
    advice = f"remove {re.escape(str(tmp_path))} and evaluate the run again"
    for name, read in (("sources", read_translations), ("references.tokens", read_tokens)):
        write(tmp_path, **{f"{name}.txt": ["1", "2"]})
        with pytest.raises(UserError, match=f"{name}.txt has 2 lines, .*.txt has 1: {advice}"):
            read(tmp_path)


def test_an_unknown_word_of_a_reference_matches_nothing() -> None:
    """fairseq's own scorer has this BLEU for the line against itself."""
    line = ["a <unk> b c d e <unk> f g"]
    assert bleu4(line, line).score == pytest.approx(36.89, abs=0.01)
