"""Every block of docs/deploy.md runs in one folder, with a small run in place of a quickstart's."""

import importlib.util
import json
import re
import shutil
import subprocess
from itertools import product
from pathlib import Path

import pytest

from tests.deploy.conftest import hypotheses
from tests.fixtures.processes import python
from tests.fixtures.small_runs import SMALL, run_of

PAGE = (Path(__file__).parents[2] / "docs" / "deploy.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"^```(bash|python)\n(.*?)^```", PAGE, re.DOTALL | re.MULTILINE)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Make a folder that holds a small run where the page expects a quickstart's."""
    folder = tmp_path_factory.mktemp("deploy page")
    quickstart = folder / "runs" / "quickstart"
    shutil.copytree(SMALL / "data", quickstart / "data")
    run = quickstart / "tiny-mhe_mul-seed1"
    shutil.copytree(run_of("mhe_mul"), run)
    config = json.loads((run / "config.json").read_text())
    config["surroundings"]["data"] = str(quickstart / "data")
    (run / "config.json").write_text(json.dumps(config))
    return folder


def test_every_block_runs(folder: Path, commands: dict[str, str]) -> None:
    assert len(BLOCKS) >= 6
    for language, block in BLOCKS:
        if "optimum" in block and importlib.util.find_spec("optimum") is None:
            continue
        if language == "python":
            done = python(block, cwd=folder)
        else:
            line = ["bash", "-e", "-c", block]
            options = {"cwd": folder, "env": commands, "capture_output": True, "text": True}
            done = subprocess.run(line, check=False, **options)
        assert done.returncode == 0, (block, done.stderr)
        assert "--out" in block or done.stdout.strip(), block
    made = {
        name: (folder / name).read_text("utf-8").splitlines() for name in ("test.de", "int8.de")
    }
    assert made["test.de"] == hypotheses("mhe_mul")
    assert len(made["int8.de"]) == 20


def test_the_table_has_the_numbers_of_the_measurement() -> None:
    results = Path(__file__).parents[2] / "results" / "serving" / "serving.json"
    measured = json.loads(results.read_text())["rows"].values()
    engines = {"fairseq": "fairseq", "CTranslate2, one key and value head": "ctranslate2"}
    for (name, engine), int8 in product(engines.items(), ("", ", int8")):
        cells = []
        for row in (rows[engine + int8] for rows in measured):
            cells += [f"{row['rate']:,.1f}", f"{row['relative']['median']:.2f}"]
            cells += [f"{row['peak_bytes'] / 2**20:,.0f}", f"{row['file_bytes'] / 2**20:,.2f}"]
        assert f"| {name}{int8} | {' | '.join(cells)} |" in PAGE
