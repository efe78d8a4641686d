"""The environment in which tests run the commands of pages."""

import os
import sys

import pytest

from tests.fixtures.processes import LOADED


@pytest.fixture(scope="session")
def commands(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Return an environment in which ``fairseq-mhe`` and ``python`` run the tested code."""
    folder = tmp_path_factory.mktemp("bin")
    # transformers fails to import the torchaudio of ve-fairseq (docs/install.md), so hide it.
    code = "import runpy, sys; sys.modules['torchaudio'] = None; del sys.argv[0]"
    code += "; runpy.run_path(sys.argv[0], run_name='__main__')"
    lines = {"fairseq-mhe": "-m fairseq_mhe_cli", "python": f'{LOADED} -c "{code}"'}
    for name, line in lines.items():
        (folder / name).write_text(f'#!/bin/sh\nexec "{sys.executable}" {line} "$@"\n')
        (folder / name).chmod(0o755)
    return {**os.environ, "PYTHON": sys.executable, "PATH": f"{folder}:{os.environ['PATH']}"}
