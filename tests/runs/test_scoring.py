"""Scores equal sacreBLEU's own, unequal files are refused."""

import json
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from fairseq.data import Dictionary
from fairseq.scoring.bleu import BleuConfig, Scorer
from sacrebleu.metrics import BLEU, CHRF

from fairseq_mhe.common.errors import UserError
from fairseq_mhe.runs.scoring import (
    bleu4,
    bleu_tokeniser,
    read_aligned,
    read_scores,
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
        assert 0 < found.confidence < 20
    assert "tok:13a" in scores.bleu.signature
    assert "version:" in scores.bleu.signature


@pytest.mark.parametrize(
    ("language", "chosen", "expected"),
    [("zh_CN", None, "zh"), ("ja", "char", "char"), ("de", None, "13a"), (None, None, "13a")],
)
def test_the_target_language_decides_what_bleu_is_counted_of(
    language: str | None, chosen: str | None, expected: str
) -> None:
    lines = ["今天山里天气很好", "我们一起去看那些花草树木", "他说你好世界然后走了"]
    found = score([lines[0], lines[1], "他说世界然后慢慢走了"], lines, language, chosen)
    assert f"|tok:{expected}|" in found.bleu.signature
    assert tokeniser_in(found.bleu.signature) == expected
    assert (found.bleu.score > 70) == (expected in ("zh", "char"))


@pytest.mark.parametrize(("language", "extra"), [("ja", "ja"), ("ko_KR", "ko")])
def test_a_missing_dictionary_is_one_line(
    language: str, extra: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def missing(**_: object) -> None:
        raise RuntimeError("\nmany\nlines\n")

    monkeypatch.setattr("fairseq_mhe.runs.scoring.BLEU", missing)
    with pytest.raises(UserError, match=rf"pip install 'fairseq-mhe\[{extra}\]', or give another"):
        bleu_tokeniser(language)


def test_the_version_in_a_signature_is_not_the_tokenisers_name() -> None:
    assert tokeniser_in("nrefs:1|tok:ja-mecab-0.996-IPA|smooth:exp") == "ja-mecab"


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


def test_scores_are_read_as_they_were_written(tmp_path: Path) -> None:
    for language in (None, "de"):
        scores = score(BAD, REFERENCES, language)
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


def test_bleu4_is_fairseqs_own() -> None:
    """Against fairseq-generate's scorer, which counts words of a dictionary."""
    hypotheses = ["ein mann mit hut , der geht .", "zwei hunde", "eine frau in rot läuft schnell"]
    references = ["ein mann mit hut , der steht .", "zwei große hunde", "eine frau läuft schnell"]
    words = Dictionary()
    scorer = Scorer(BleuConfig(pad=words.pad(), eos=words.eos(), unk=words.unk()))
    for hypothesis, reference in zip(hypotheses, references, strict=True):
        scorer.add(*(words.encode_line(line).int() for line in (reference, hypothesis)))
    assert str(bleu4(hypotheses, references)) == scorer.result_string()
