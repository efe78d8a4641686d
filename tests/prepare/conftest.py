"""Fixtures of the tests of preparation: small parallel texts, a prepared folder of each kind."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from fairseq_mhe.prepare.config import PrepareConfig
from fairseq_mhe.prepare.corpora.home_assistant import HomeAssistant
from tests.fixtures.language import small_text
from tests.fixtures.miniature import Server, serve
from tests.fixtures.text import Pairs, read_corpus, write_parallel

#: The lines of `language_text`.
LINES = [pair[0] for pair in read_corpus()["train"][:400]]


@pytest.fixture
def config(tmp_path: Path, corpus: dict[str, Pairs]) -> PrepareConfig:
    """A configuration for 300, 20 and 20 pairs of the corpus; nothing is prepared yet."""
    sizes = {"train": 300, "valid": 20, "test": 20}
    options: dict[str, Any] = {
        name: write_parallel(tmp_path / "text" / name, corpus[name][:size])
        for name, size in sizes.items()
    }
    options |= {"train": (options["train"],), "source_lang": "en", "target_lang": "de"}
    options["max_ratio"] = 1.5  # as for WMT14
    return PrepareConfig(out=tmp_path / "data", vocab_size=200, workers=1, **options)


@pytest.fixture(scope="session", params=["bpe", "sentencepiece"])
def prepared(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A complete data folder of 300 pairs of the embedded corpus; tests must not change it."""
    out = tmp_path_factory.mktemp(f"data {request.param}")
    corpus = HomeAssistant(out=out, subword=request.param, vocab_size=300, limit=300, workers=2)
    return corpus.prepare()


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    """A server of the files in the folder ``served``."""
    (tmp_path / "served").mkdir()
    with serve(tmp_path / "served") as running:
        yield running


@pytest.fixture(scope="session")
def language_text(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A complete data folder of running text; tests must not change it."""
    folder = tmp_path_factory.mktemp("language")
    return small_text(folder, LINES, vocab_size=250, block=64)
