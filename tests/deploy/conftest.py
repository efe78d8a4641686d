"""A small run as a run folder and as a bundle, which the tests of this room share."""

from dataclasses import replace
from pathlib import Path

import pytest

from fairseq_mhe.deploy.export import export
from fairseq_mhe.deploy.trained import Trained, open_trained
from fairseq_mhe.deploy.translator import Translator
from tests.fixtures.small_runs import MADE, run_of

SOURCES = (MADE / "data" / "raw" / "test.en").read_text(encoding="utf-8").splitlines()
#: The model never comes to an end, and the others' limit of 200 subwords takes long.
BRIEF = {"max_len_a": 0, "max_len_b": 10}


def hypotheses(kind: str) -> list[str]:
    """What fairseq-generate made of the test set with the run's model."""
    path = run_of(kind) / "test" / "hypotheses.txt"
    return path.read_text(encoding="utf-8").splitlines()


def trained(kind: str = "mhe_mul") -> Trained:
    return open_trained(run_of(kind), MADE / "data")


@pytest.fixture(scope="session")
def exported(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A bundle, which no test writes in."""
    folder = tmp_path_factory.mktemp("bundles") / "a bundle"
    export(trained(), "fairseq", folder)
    return folder


@pytest.fixture(scope="session")
def brief(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A bundle that says 10 subwords at most, which no test writes in."""
    folder = tmp_path_factory.mktemp("bundles") / "a brief bundle"
    model = trained()
    few = replace(model.decoding, **BRIEF)
    export(replace(model, decoding=few), "fairseq", folder)
    return folder


@pytest.fixture(scope="session")
def translator(exported: Path) -> Translator:
    """The bundle's, by fairseq."""
    return Translator.load(exported, engine="fairseq", cpu=True)
