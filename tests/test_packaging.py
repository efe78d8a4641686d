"""The wheel holds the whole package; citation, changelog and docs state its version."""

import json
import re
import shutil
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import fairseq
import pytest
import yaml

import fairseq_mhe
from fairseq_mhe import cli
from fairseq_mhe.common.system import EXTRAS
from tests.fixtures.processes import WITHOUT_FAIRSEQ, python

REPOSITORY = Path(__file__).parents[1]
PROJECT = tomllib.loads((REPOSITORY / "pyproject.toml").read_text(encoding="utf-8"))["project"]


def test_the_wheel_has_every_file_of_the_package(tmp_path: Path) -> None:
    """The wheel is built from a copy, so that the repository stays clean."""
    tracked = ["git", "ls-files", "-zco", "--exclude-standard"]
    tracked += ["fairseq_mhe", "scripts/fairseq_mhe_cli", "*.toml"]
    listed = subprocess.run(tracked, cwd=REPOSITORY, capture_output=True, text=True, check=False)
    if listed.returncode:
        pytest.skip("this is not a git clone")
    files = [name for name in listed.stdout.split("\0") if (REPOSITORY / name).is_file()]
    for name in ("README.md", "LICENSE", "setup.py", *files):
        target = tmp_path / "source" / name
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(REPOSITORY / name, target)
    command = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-index"]
    command += ["--no-build-isolation", "--wheel-dir", str(tmp_path), str(tmp_path / "source")]
    subprocess.run(command, check=True, capture_output=True)
    (wheel,) = tmp_path.glob("*.whl")
    modules = [name.removeprefix("scripts/") for name in files]
    own = {name for name in modules if name.startswith("fairseq_mhe")}
    assert own - set(zipfile.ZipFile(wheel).namelist()) == {"fairseq_mhe/ruff.toml"}


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
    main = f"import fairseq_mhe_cli; sys.exit(fairseq_mhe_cli.main({words!r}))"
    done = python(WITHOUT_FAIRSEQ + main)
    expected = "fairseq-mhe bench: error: fairseq is not installed: "
    assert done.returncode == status, done.stderr
    assert done.stderr.startswith(expected) if status else not done.stderr
    assert len(done.stderr.splitlines()) == (1 if status else 0)


def test_each_optional_package_is_in_the_extra_that_its_message_names() -> None:
    for package, extra in EXTRAS.items():
        listed = PROJECT["optional-dependencies"][extra]
        assert any(re.match(rf"{package}\b", requirement) for requirement in listed), package


#: Asks commands for help in a Python without some packages; prints the status and error of each.
_HELP = """
import contextlib, io, json, sys
import fairseq_mhe_cli
absent, names = map(json.loads, sys.argv[1:])
sys.modules.update(dict.fromkeys(absent))
answers = {}
for name in names:
    with contextlib.redirect_stdout(io.StringIO()) as printed:
        with contextlib.redirect_stderr(io.StringIO()) as error:
            try:
                status = fairseq_mhe_cli.main([name, "--help"])
            except SystemExit as end:
                status = end.code
    answers[name] = status or int(not printed.getvalue().startswith("usage: ")), error.getvalue()
print(json.dumps(answers))
"""


def test_a_plain_installation_has_the_plugin_and_other_commands_name_their_extra() -> None:
    """The page lists the commands that need no extra."""
    page = (REPOSITORY / "docs" / "install.md").read_text(encoding="utf-8")
    (listed,) = re.findall(r"`fairseq-mhe` with (.*?)\.", page, re.DOTALL)
    absent = [package for package in EXTRAS if package != "scipy"]  # fairseq brings scipy
    done = python(_HELP, json.dumps(absent), json.dumps([*cli.SUBCOMMANDS]))
    assert done.returncode == 0, done.stderr
    runs = set()
    for name, (status, error) in json.loads(done.stdout.splitlines()[-1]).items():
        if status == 0:
            runs.add(name)
        else:
            assert re.fullmatch(r".*pip install 'fairseq-mhe\[\w+\]'\n", error), error
    assert {*re.findall(r"`([\w-]+)`", listed)} <= runs


def test_the_installed_fairseq_is_a_supported_one() -> None:
    """Run with another environment (PYTHON), this tests another version."""
    pinned = [r.split(";")[0] for r in PROJECT["optional-dependencies"]["fairseq"]]
    versions = {requirement.partition("==")[2] for requirement in pinned}
    assert versions == {*fairseq_mhe.SUPPORTED_FAIRSEQ}
    assert fairseq.__version__ in versions
