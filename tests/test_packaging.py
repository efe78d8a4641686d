"""The wheel has all that works outside a clone, and says what it is."""

import re
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import pytest
import yaml

import fairseq_mhe
from fairseq_mhe.prepare.corpora.home_assistant import CORPUS
from tests.fixtures.processes import WITHOUT_FAIRSEQ, python

REPOSITORY = Path(__file__).parents[1]
PROJECT = tomllib.loads((REPOSITORY / "pyproject.toml").read_text(encoding="utf-8"))["project"]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> zipfile.ZipFile:
    """Built of a copy, so that nothing is left in the repository."""
    folder = tmp_path_factory.mktemp("wheel")
    tracked = ["git", "-C", str(REPOSITORY), "ls-files", "-zco", "--exclude-standard"]
    tracked += ["fairseq_mhe", "*.toml", "*.py"]
    listed = subprocess.run(tracked, capture_output=True, check=False)
    if listed.returncode:
        pytest.skip("no clone of git's is here to build a wheel of")
    for name in ("README.md", "LICENSE", *filter(None, listed.stdout.decode().split("\0"))):
        source = REPOSITORY / name
        if source.is_file() and not name.startswith(("tests/", "results/")):
            target = folder / "source" / name
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(source.read_bytes())
    command = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-index"]
    command += ["--no-build-isolation", "--wheel-dir", str(folder), str(folder / "source")]
    subprocess.run(command, check=True, capture_output=True)
    (made,) = folder.glob("*.whl")
    return zipfile.ZipFile(made)


def test_the_wheel_has_the_corpus_with_its_licence_and_the_types(wheel: zipfile.ZipFile) -> None:
    package = Path(fairseq_mhe.__file__).parents[1]
    names = wheel.namelist()
    assert wheel.read(str(CORPUS.relative_to(package))) == CORPUS.read_bytes()
    assert str(CORPUS.with_name("LICENSE.txt").relative_to(package)) in names
    assert "fairseq_mhe/py.typed" in names
    tables = {str(path.relative_to(package)) for path in package.glob("fairseq_mhe/**/*.yaml")}
    assert {name for name in names if name.endswith(".yaml")} == tables
    modules = {str(path.relative_to(package)) for path in package.glob("fairseq_mhe/**/*.py")}
    assert {name for name in names if name.endswith(".py")} == modules


def test_citation_changelog_and_page_know_the_version() -> None:
    citation = yaml.safe_load((REPOSITORY / "CITATION.cff").read_text(encoding="utf-8"))
    assert citation["version"] == PROJECT["version"]
    assert citation["preferred-citation"]["url"] == "https://arxiv.org/abs/2310.07911"
    changelog = (REPOSITORY / "CHANGELOG.md").read_text(encoding="utf-8")
    assert re.findall(r"^## (\S+)", changelog, re.MULTILINE)[0] == PROJECT["version"]
    page = (REPOSITORY / "docs" / "install.md").read_text(encoding="utf-8")
    assert f"fairseq_mhe-{PROJECT['version']}-py3" in page
    for extra in PROJECT["optional-dependencies"]:
        assert f"`{extra}`" in page


@pytest.mark.parametrize(("words", "status"), [(["bench"], 2), (["--version"], 0)])
def test_without_fairseq_one_line_says_so(words: list[str], status: int) -> None:
    """pip without the extra [fairseq] installs none."""
    done = python(f"{WITHOUT_FAIRSEQ}from fairseq_mhe import cli; sys.exit(cli.main({words!r}))")
    told = "fairseq-mhe bench: error: fairseq is not installed: pip install 've-fairseq"
    assert done.returncode == status, done.stderr
    assert done.stderr.startswith(told) if status else not done.stderr
    assert len(done.stderr.splitlines()) == (1 if status else 0)
