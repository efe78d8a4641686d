"""Every command of docs/train_your_own.md runs, with a small text and a short training."""

import re
import shlex
import shutil
import subprocess
from pathlib import Path

from tests.fixtures.small_runs import SMALL

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "train_your_own.md").read_text(encoding="utf-8")
COMMANDS = re.findall(r"(?<=\n\n)(?: {4}.+\n)+", PAGE)
#: Text of the page -> text that makes the command take seconds, not hours.
SHORTER = {
    "--rows small": "--rows tiny --cpu --updates 2",
    "--seeds 1,2,3": "--seeds 1",
    "small-mhe_mul": "tiny-mhe_mul",
    "--vocab-size 4000": "--vocab-size 300",
}


def test_every_command_runs(tmp_path: Path, commands: dict[str, str]) -> None:
    (tmp_path / "my").mkdir()
    for lang in ("en", "de"):
        shutil.copy(SMALL / "text" / f"train.{lang}", tmp_path / "my")
    clone = shlex.quote(str(ROOT))
    script = re.sub(
        r"bash (data-prep|scripts)/", lambda found: f"bash {clone}/{found[1]}/", "".join(COMMANDS)
    )
    for long, short in SHORTER.items():
        assert long in script
        script = script.replace(long, short)
    line = ["bash", "-euxo", "pipefail", "-c", script]
    options = {"cwd": tmp_path, "env": commands, "capture_output": True, "text": True}
    done = subprocess.run(line, check=False, timeout=500, **options)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "runs" / "mine-table" / "table.md").is_file()
