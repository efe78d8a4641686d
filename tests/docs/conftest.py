"""The commands that pages run."""

import os
import sys

import pytest

from tests.fixtures.processes import LOADED


@pytest.fixture(scope="session")
def commands(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Variables with which ``fairseq-mhe`` and ``python`` are those of the tests."""
    place = tmp_path_factory.mktemp("bin")
    # fairseq's torchaudio, which transformers stumbles over (docs/install.md), is not to be found.
    code = "import runpy, sys; sys.modules['torchaudio'] = None; del sys.argv[0]"
    code += "; runpy.run_path(sys.argv[0], run_name='__main__')"
    lines = {"fairseq-mhe": "-m fairseq_mhe.cli", "python": f'{LOADED} -c "{code}"'}
    for name, line in lines.items():
        (place / name).write_text(f'#!/bin/sh\nexec "{sys.executable}" {line} "$@"\n')
        (place / name).chmod(0o755)
    return {**os.environ, "PYTHON": sys.executable, "PATH": f"{place}:{os.environ['PATH']}"}
