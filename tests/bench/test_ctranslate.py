"""CTranslate2 translates the same sentences to the same lengths."""

from __future__ import annotations

import importlib.util

import pytest

from fairseq_mhe.bench import ctranslate
from fairseq_mhe.bench.ctranslate import CTRANSLATE2, CTranslate2Workload
from fairseq_mhe.common.errors import UserError
from tests.bench.conftest import make_settings


@pytest.mark.skipif(
    importlib.util.find_spec("ctranslate2") is None, reason="ctranslate2 is not installed"
)
def test_it_translates_whole_sentences_to_the_length_asked_for() -> None:
    workload = CTranslate2Workload(CTRANSLATE2, make_settings())
    workload.prepare({"beam": 2, "length": 6, "source_length": 9, "batch": 3, "dtype": "float32"})
    assert [len(sentence) for sentence in workload._sentences] == [8, 8, 7]
    assert workload.repetition()["total"] > 0  # which checks the lengths
    assert workload.facts()["units"] == 3
    assert workload.facts()["weight_bytes"] > 0


def test_without_it_there_is_one_clear_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(UserError, match="pip install ctranslate2"):
        ctranslate.check_installed()
