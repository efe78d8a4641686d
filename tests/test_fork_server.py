"""A command that the fork server runs for the tests behaves as in a fresh process."""

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.fixtures.processes import PYTHON

#: A stand-in for a command of fairseq, which Python finds by PYTHONPATH.
_PROBE = """
import os, signal, sys, time
if sys.argv[1:] == ["state"]:
    import torch
    print(__name__, sys.argv, os.getcwd(), sys.stdin.read(), sys.path)
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGPIPE):
        print(number, signal.getsignal(number))
    print(torch.get_num_threads(), sys.stdout.encoding, sys.stdout.line_buffering)
    print([name for name in sys.modules if name.startswith("fairseq_mhe")])
    for name, value in sorted(os.environ.items()):
        if name not in ("PWD", "_"):  # the stand-in is a shell's script
            print(name, value)
elif sys.argv[1:] == ["sleep"]:
    print(os.getpid(), flush=True)
    time.sleep(600)
elif sys.argv[1:] == ["raise"]:
    raise ValueError("so it goes")
else:
    sys.exit(eval(sys.argv[1]))
"""


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    package = tmp_path / "fairseq_cli"
    package.mkdir()
    (package / "__init__.py").touch()
    (package / "probe.py").write_text(_PROBE)
    variables = {"PYTHONPATH": str(tmp_path), "OMP_NUM_THREADS": "2", "ANYTHING": "é 'x"}
    return {**os.environ, **variables}


def run_probe(python: str, environment: dict[str, str], *words: str) -> Any:
    line = [python, "-m", "fairseq_cli.probe", *words]
    options = {"env": environment, "cwd": environment["PYTHONPATH"]}
    return subprocess.run(line, **options, input="some input", capture_output=True, text=True)


@pytest.mark.parametrize(
    ("words", "variables"),
    [
        ("state", {}),
        ("raise", {}),
        ("'one line'", {}),
        ("os.kill(os.getpid(), 9)", {}),
        ("hash('x') % 256", {"PYTHONHASHSEED": "7"}),  # which Python reads at its start
    ],
)
def test_a_forked_command_behaves_as_a_fresh_process_does(
    environment: dict[str, str], words: str, variables: dict[str, str]
) -> None:
    assert sys.executable != PYTHON
    environment |= variables
    forked, fresh = (run_probe(python, environment, words) for python in (sys.executable, PYTHON))
    assert forked.returncode == fresh.returncode
    assert forked.stdout.splitlines() == fresh.stdout.splitlines()
    assert forked.stderr.splitlines()[-1:] == fresh.stderr.splitlines()[-1:]


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGINT])
def test_a_killed_command_is_gone(environment: dict[str, str], number: int) -> None:
    command = [sys.executable, "-m", "fairseq_cli.probe", "sleep"]
    folder = environment["PYTHONPATH"]
    streams = {"stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL}
    with subprocess.Popen(command, env=environment, cwd=folder, **streams) as client:
        process = int(client.stdout.readline())
        client.send_signal(number)
        assert client.wait() == -number
    # The server ends a command before it starts the next one.
    assert run_probe(sys.executable, environment, "0").returncode == 0
    with pytest.raises(ProcessLookupError):
        os.kill(process, 0)
