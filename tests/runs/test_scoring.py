"""Scores equal those of sacreBLEU and fairseq; texts of unequal length are refused."""

import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from fairseq.data import Dictionary
from fairseq.scoring.bleu import BleuConfig, Scorer
from sacrebleu.metrics import BLEU, CHRF
from sacrebleu.significance import PairedTest, Result

from fairseq_mhe.runs import scoring
from fairseq_mhe.runs.scoring import bleu4, score, tokenised_bleu, tokeniser_in
from tests.fixtures.refusals import refuses
from tests.fixtures.translations import BAD, REFERENCES, write


def test_scores_intervals_and_signatures_equal_sacrebleus() -> None:
    """The intervals are those of sacreBLEU's paired bootstrap, up to the choice of resamples."""
    scores = score(BAD, REFERENCES)
    assert scores["sentences"] == 60
    metrics: dict[str, BLEU | CHRF] = {"BLEU": BLEU(), "chrF": CHRF()}
    by_names = PairedTest([("system", BAD)], metrics, [REFERENCES], "bs", 5000)()[1]
    for name, metric, theirs in (("bleu", "BLEU", "BLEU"), ("chrf", "chrF", "chrF2")):
        result, *_ = by_names[theirs]
        assert isinstance(result, Result)
        expected = metrics[metric].corpus_score(BAD, [REFERENCES]).score
        assert scores[name]["score"] == pytest.approx(expected, abs=1e-4)
        assert scores[name]["confidence"] == pytest.approx(result.ci, rel=0.05)
        assert scores[name]["signature"] == str(metrics[metric].get_signature())
    assert score(REFERENCES, REFERENCES)["bleu"]["confidence"] == 0


@pytest.mark.parametrize(
    ("language", "chosen", "expected"),
    [
        ("zh_CN", None, "zh"),
        ("ja", "char", "char"),
        ("tha_Thai", None, "char"),
        (None, None, "13a"),
    ],
)
def test_the_target_language_chooses_the_tokeniser_of_bleu(
    language: str | None, chosen: str | None, expected: str
) -> None:
    lines = ["今天山里天气很好", "我们一起去看那些花草树木", "他说你好世界然后走了"]
    bleu = score([lines[0], lines[1], "他说世界然后慢慢走了"], lines, language, chosen)["bleu"]
    assert f"|tok:{expected}|" in bleu["signature"]
    assert tokeniser_in(bleu["signature"]) == expected
    assert (bleu["score"] > 70) == (expected in ("zh", "char"))


@pytest.mark.parametrize(
    ("hypothesis", "reference", "case"),
    [
        ("ein mann geht weg", "ein mann geht fort", "lc"),
        ("Ein mann geht weg", "ein mann geht fort", "mixed"),
        ("ein mann geht weg", "ein Mann geht fort", "mixed"),
    ],
)
def test_the_signature_says_whether_all_text_is_lower_cased(
    hypothesis: str, reference: str, case: str
) -> None:
    """The score is that of sacreBLEU's default: among lower-cased lines case changes nothing."""
    scores = score([hypothesis], [reference])
    assert f"|case:{case}|" in scores["bleu"]["signature"]
    assert f"|case:{case}|" in scores["chrf"]["signature"]
    expected = BLEU().corpus_score([hypothesis], [[reference]]).score
    assert scores["bleu"]["score"] == pytest.approx(expected, abs=1e-4)


def test_tokenised_bleu_equals_that_of_the_original_scripts(tmp_path: Path) -> None:
    """sacremoses' command, sed for the compounds and sacreBLEU's command give the same score."""
    line = "Tage-Plan (neu) von bzw. Haus ist gut, aber E-Mail-Adressen fehlen: a-b-c."
    references = [f"Der {i}-{line}" for i in range(12)]
    hypotheses = [each.replace("E-", "E ") for each in references]
    for i in range(1, 12, 2):
        hypotheses[i] = references[i].replace("Plan", "Entwurf").replace("bzw.", "bzw")
    write(tmp_path, ref=references, hyp=hypotheses)
    script = (
        f"{shlex.quote(sys.executable)} -m sacremoses -q -l de tokenize -x < $0 "
        "| sed -E 's/([^ ])-([^ ])/\\1 ##AT##-##AT## \\2/g' > $0.tok"
    )
    for name in ("ref", "hyp"):
        subprocess.run(["bash", "-c", script, name], cwd=tmp_path, check=True, capture_output=True)
    assert "Tage ##AT##-##AT## Plan" in (tmp_path / "ref.tok").read_text()
    line = "-m sacrebleu ref.tok -i hyp.tok -tok none -s none --force -b -w 4"
    theirs = subprocess.run(
        [sys.executable, *line.split()], cwd=tmp_path, capture_output=True, text=True, check=True
    )
    ours = tokenised_bleu(hypotheses, references, "de")
    assert ours["score"] == pytest.approx(float(theirs.stdout), abs=1e-3)
    assert "tok:none|smooth:none" in ours["signature"]
    assert score(hypotheses, references)["tokenised"] is None
    assert score(hypotheses, references, "de")["tokenised"] == ours
    assert score(hypotheses, references, "zh_CN")["tokenised"] is None, "Chinese has no spaces"


@pytest.mark.parametrize(
    ("hypotheses", "references"),
    [
        (
            ["ein mann mit hut , der geht .", "zwei hunde", "eine frau in rot läuft schnell"],
            ["ein mann mit hut , der steht .", "zwei große hunde", "eine frau läuft schnell"],
        ),
        (["ein mann (mit hut), der geht"], ["ein mann (mit hut), der gerade eben sehr weit geht"]),
        (["ein hund"], ["ein großer hund läuft weg"]),  # no trigram: 0, and a brevity penalty
        (["a <unk> b c d e f"], ["a <unk> b c d e f"]),  # <unk> of a reference matches nothing
    ],
)
def test_bleu4_equals_fairseqs(hypotheses: list[str], references: list[str]) -> None:
    """The reference is fairseq-generate's scorer, which counts the words of a dictionary."""
    words = Dictionary()
    for line in references + hypotheses:
        words.encode_line(line)
    scorer = Scorer(BleuConfig(pad=words.pad(), eos=words.eos(), unk=words.unk()))
    for hypothesis, reference in zip(hypotheses, references, strict=True):
        scorer.add(*(words.encode_line(line).int() for line in (reference, hypothesis)))
    lines = bleu4(hypotheses, references)["line"], scorer.result_string()
    ours, theirs = (list(map(float, re.findall(r"(?<!BLEU)\d[\d.]*", line))) for line in lines)
    assert ours == theirs, "score, precisions, brevity penalty, ratio and lengths"


def test_translations_are_read_with_sources_and_references(tmp_path: Path) -> None:
    texts = {"references": ["r"], "sources": ["s"], "hypotheses": ["h"]}
    for more in ({}, {"references.tokens": ["rt"], "hypotheses.tokens": ["ht"]}):
        texts |= more
        write(tmp_path, **{f"{name}.txt": lines for name, lines in texts.items()})
        assert scoring.read_translations(tmp_path) == texts
    write(tmp_path, none=[], **{"hypotheses.txt": ["1", "2"]})
    with refuses("hypotheses.txt has 2 lines"):
        scoring.read_translations(tmp_path)
    with refuses("none has 0 lines"):
        scoring.read_aligned([tmp_path / "none"])


def test_resamples_without_any_match_have_an_interval() -> None:
    """sacreBLEU's own estimate for chrF mixes float and float32 in this case, and fails."""
    assert score(["abcdefgh", "x"], ["abcdefgh", "y"])["chrf"]["confidence"] > 0
    nothing = score(["x", "y"], ["v", "w"])
    assert nothing["chrf"] == {**nothing["chrf"], "score": 0.0, "confidence": 0.0}
