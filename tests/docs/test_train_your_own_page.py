"""Every command of docs/train_your_own.md runs, with a small text and a short training."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

from tests.fixtures.small_runs import MADE

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "train_your_own.md").read_text(encoding="utf-8")
COMMANDS = re.findall(r"(?<=\n\n)(?: {4}.+\n)+", PAGE)
#: What makes a training of hours one of seconds.
SHORTER = {
    "--rows small": "--rows tiny --cpu --updates 2",
    "--seeds 1,2,3": "--seeds 1",
    "small-mhe_mul": "tiny-mhe_mul",
    "--hold-out 50": "--hold-out 50 --vocab-size 300",
}


def test_every_command_runs(tmp_path: Path) -> None:
    (tmp_path / "my").mkdir()
    for lang in ("en", "de"):
        shutil.copy(MADE / "text" / f"train.{lang}", tmp_path / "my")
    program = tmp_path / "bin" / "fairseq-mhe"
    program.parent.mkdir()
    program.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m fairseq_mhe.cli "$@"\n')
    program.chmod(0o755)
    path = f"{program.parent}:{os.environ['PATH']}"
    script = re.sub(r"bash (data-prep|scripts)/", rf"bash '{ROOT}'/\1/", "".join(COMMANDS))
    for long, short in SHORTER.items():
        assert long in script
        script = script.replace(long, short)
    done = subprocess.run(
        ["bash", "-euxo", "pipefail", "-c", script],
        cwd=tmp_path,
        env={**os.environ, "PYTHON": sys.executable, "PATH": path},
        capture_output=True,
        text=True,
        check=False,
        timeout=500,
    )
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "runs" / "mine-table" / "table.md").is_file()
