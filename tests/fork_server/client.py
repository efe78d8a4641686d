"""Stands for ``python -m MODULE ARGUMENT...``: the fork server runs the command in its place.

The client forwards signals to the command, and ends with the command's exit status. If a variable
that Python or a library reads at its start differs from the server's, it starts a new Python.
"""

import array
import json
import os
import signal
import socket
import sys

#: Prefixes of variables that Python or torch reads when it is loaded. TORCHINDUCTOR_CACHE_DIR is
#: left out, because torch sets it in the tests' process; GLIBC_TUNABLES, because every training on
#: a CPU sets it, for speed alone.
EARLY = ("PYTHON", "LD_", "LANG", "LC_", "MALLOC", "CUDA_", "TORCH_", "PYTORCH_", "GOMP_")
#: Of these, what a fork can obey, PYTHON of scripts/*.sh, and what our commands set for speed.
LATE = ("PYTHONPATH", "PYTHONUNBUFFERED", "PYTHON", "GOMP_SPINCOUNT")
FORWARDED = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def early_variables() -> dict[str, str]:
    """Return the variables that must have the same values in the server."""
    early = {name for name in os.environ if name.startswith(EARLY)}
    return {name: os.environ[name] for name in early.difference(LATE)}


def main(folder: str, safe_path: bool, words: list[str]) -> int:
    """Have the server run the command; return its exit status, negative for a signal."""
    request = {"safe_path": safe_path, "words": words, "session": os.getsid(0)}
    request |= {"folder": os.getcwd(), "environment": dict(os.environ)}
    body = json.dumps(request).encode()
    server = socket.socket(socket.AF_UNIX)
    server.connect(f"{folder}/socket")
    streams = array.array("i", [0, 1, 2]).tobytes()
    rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, streams)]
    server.sendmsg([len(body).to_bytes(4, "big")], rights)
    server.sendall(body)
    answer = server.makefile("r")
    process = int(answer.readline())
    for number in FORWARDED:
        signal.signal(number, lambda number, _: os.kill(process, number))
    return int(answer.readline())


if __name__ == "__main__":
    _, server_folder, python, *line = sys.argv
    with open(f"{server_folder}/variables.json") as stream:
        if json.load(stream) != early_variables():
            os.execv(python, [python, *line])  # noqa: S606
    safe = line[0] == "-P"
    status = main(server_folder, safe, line[1:] if safe else line)
    if status < 0:
        if status != -signal.SIGKILL:
            signal.signal(-status, signal.SIG_DFL)
        os.kill(os.getpid(), -status)
    sys.exit(status)
