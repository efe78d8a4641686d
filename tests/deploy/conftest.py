"""Fixtures that tests of deploy share: a small trained run, and bundles of it."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from fairseq_mhe.deploy.export import export
from fairseq_mhe.deploy.trained import Trained, open_trained
from fairseq_mhe.deploy.translator import Translator
from tests.fixtures.small_runs import SMALL, run_of

SOURCES = (SMALL / "data" / "raw" / "test.en").read_text(encoding="utf-8").splitlines()
#: The small model never predicts </s>. The usual limit of 200 subwords would make tests slow.
BRIEF = {"max_len_a": 0, "max_len_b": 10}


def hypotheses(kind: str) -> list[str]:
    """Return fairseq-generate's translations of the test set with the run's model."""
    path = run_of(kind) / "test" / "hypotheses.txt"
    return path.read_text(encoding="utf-8").splitlines()


def trained(kind: str = "mhe_mul") -> Trained:
    return open_trained(run_of(kind), SMALL / "data")


@pytest.fixture(scope="session", autouse=True)
def cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The folder in which ``--engine auto`` keeps converted models."""
    folder = tmp_path_factory.mktemp("cache")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(folder))
        yield folder


@pytest.fixture(scope="session")
def exported(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A bundle of the format fairseq. Tests must not write to it."""
    folder = tmp_path_factory.mktemp("bundles") / "a bundle"
    export(trained(), "fairseq", folder)
    return folder


@pytest.fixture(scope="session")
def brief(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A bundle that limits translations to 10 subwords. Tests must not write to it."""
    folder = tmp_path_factory.mktemp("bundles") / "a brief bundle"
    model = trained()
    decoding = replace(model.decoding, **BRIEF)
    export(replace(model, decoding=decoding), "fairseq", folder)
    return folder


@pytest.fixture(scope="session")
def translator(exported: Path) -> Translator:
    """The bundle's translator, with the engine fairseq."""
    return Translator.load(exported, engine="fairseq", cpu=True)
