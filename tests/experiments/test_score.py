"""``fairseq-mhe score`` prints each number with its meaning."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from fairseq_mhe import cli
from fairseq_mhe.report.significance import compare
from fairseq_mhe.runs.scoring import score
from tests.fixtures.translations import BAD, GOOD, REFERENCES, write


def test_the_command_prints_scores_with_their_meaning(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write(tmp_path, ref=REFERENCES, good=GOOD, bad=BAD)
    files = ["--reference", str(tmp_path / "ref"), "--hypothesis", str(tmp_path / "bad")]
    assert cli.main(["score", *files, "--baseline", str(tmp_path / "good")]) == 0
    bleu, chrf, comparison = capsys.readouterr().out.splitlines()
    assert bleu.startswith(f"BLEU {score(BAD, REFERENCES)['bleu']['score']:.2f} ± ")
    assert "nrefs:1|case:mixed|eff:no|tok:13a" in bleu
    assert "60 sentences" in chrf
    assert comparison.startswith(f"PRR {compare([BAD], [GOOD], REFERENCES).prr:.1f} [")
    assert cli.main(["score", *files, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["comparison"] is None
