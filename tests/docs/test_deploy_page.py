"""Every block of docs/deploy.md runs, in one folder, with a small run."""

import importlib.util
import json
import os
import re
import shutil
import subprocess
import sys
from itertools import product
from pathlib import Path

import pytest

from fairseq_mhe.deploy.export import FORMATS
from tests.deploy.conftest import hypotheses
from tests.fixtures.processes import LOADED, python
from tests.fixtures.small_runs import MADE, run_of

PAGE = (Path(__file__).parents[2] / "docs" / "deploy.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"^```(bash|python)\n(.*?)^```", PAGE, re.DOTALL | re.MULTILINE)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a quickstart's."""
    folder = tmp_path_factory.mktemp("deploy page")
    quickstart = folder / "runs" / "quickstart"
    shutil.copytree(MADE / "data", quickstart / "data")
    run = quickstart / "tiny-mhe_mul-seed1"
    shutil.copytree(run_of("mhe_mul"), run)
    config = json.loads((run / "config.json").read_text())
    config["surroundings"]["data"] = str(quickstart / "data")
    (run / "config.json").write_text(json.dumps(config))
    return folder


@pytest.fixture(scope="module")
def commands(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Variables with which ``fairseq-mhe`` and ``python`` are those of the tests."""
    place = tmp_path_factory.mktemp("bin")
    command = f'exec "{sys.executable}" -m fairseq_mhe.cli "$@"'
    # fairseq's torchaudio, which transformers stumbles over (docs/install.md), is not to be found.
    code = "import runpy, sys; sys.modules['torchaudio'] = None; del sys.argv[0]"
    code += "; runpy.run_path(sys.argv[0], run_name='__main__')"
    clean = f'exec "{sys.executable}" {LOADED} -c "{code}" "$@"'
    for name, line in (("fairseq-mhe", command), ("python", clean)):
        (place / name).write_text(f"#!/bin/sh\n{line}\n")
        (place / name).chmod(0o755)
    return {**os.environ, "PATH": f"{place}:{os.environ['PATH']}"}


def test_every_block_runs(folder: Path, commands: dict[str, str]) -> None:
    pytest.importorskip("ctranslate2", reason="ctranslate2 is not installed")
    assert len(BLOCKS) >= 6
    for language, block in BLOCKS:
        if "huggingface" in block and importlib.util.find_spec("transformers") is None:
            continue
        if "optimum" in block and importlib.util.find_spec("optimum") is None:
            continue
        if language == "python":
            done = python(block, cwd=folder)
        else:
            line = ["bash", "-e", "-c", block]
            options = {"cwd": folder, "env": commands, "capture_output": True, "text": True}
            done = subprocess.run(line, check=False, **options)
        assert done.returncode == 0, (block, done.stderr)
        written = "--out" in block
        assert written or done.stdout.strip(), block
    for name in ("test.de", "int8.de"):
        assert len((folder / name).read_text(encoding="utf-8").splitlines()) == 20
    found = (folder / "test.de").read_text(encoding="utf-8").splitlines()
    assert found == hypotheses("mhe_mul")


def test_every_format_has_a_row() -> None:
    for name in FORMATS:
        assert f"| `{name}` |" in PAGE


def test_numbers_are_those_of_the_measurement() -> None:
    measured = json.loads(
        (Path(__file__).parents[2] / "results" / "serving" / "serving.json").read_text()
    )["rows"]
    engines = {"fairseq": "fairseq", "CTranslate2, one key and value head": "ctranslate2"}
    for (told, engine), int8 in product(engines.items(), ("", ", int8")):
        cells = [
            cell
            for row in measured.values()
            for cell in (
                f"{row[engine + int8]['rate']:,.1f}",
                f"{row[engine + int8]['relative']['median']:.2f}",
                f"{row[engine + int8]['peak_bytes'] / 2**20:,.0f}",
                f"{row[engine + int8]['file_bytes'] / 2**20:,.2f}",
            )
        ]
        assert f"| {told}{int8} | {' | '.join(cells)} |" in PAGE
