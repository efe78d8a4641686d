"""Stands for ``python -m MODULE WORD...``, which the fork server runs as if it were this process.

It passes on the signals that it gets, and ends as the command ends. Where a variable is set
otherwise that Python or a library reads when it starts, a Python of its own is started instead.
"""

import array
import json
import os
import signal
import socket
import sys

#: Beginnings of the names of variables that matter when Python or torch is loaded (without
#: TORCHINDUCTOR_CACHE_DIR, which torch itself sets in the process of the tests, and without
#: GLIBC_TUNABLES, which every training on a CPU is given for speed alone).
EARLY = ("PYTHON", "LD_", "LANG", "LC_", "MALLOC", "CUDA_", "TORCH_", "PYTORCH_", "GOMP_")
#: Of them, those that can be obeyed later, and that of scripts/*.sh.
LATE = ("PYTHONPATH", "PYTHONUNBUFFERED", "PYTHON")
PASSED_ON = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def early_variables() -> dict[str, str]:
    """The variables that must be the server's own."""
    early = {name for name in os.environ if name.startswith(EARLY)}
    return {name: os.environ[name] for name in early.difference(LATE)}


def main(folder: str, safe_path: bool, words: list[str]) -> int:
    """Have the server run it; the exit status, negative for a signal."""
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
    for number in PASSED_ON:
        signal.signal(number, lambda number, _: os.kill(process, number))
    return int(answer.readline())


if __name__ == "__main__":
    _, place, python, *line = sys.argv
    with open(f"{place}/variables.json") as stream:
        if json.load(stream) != early_variables():
            os.execv(python, [python, *line])  # noqa: S606
    safe = line[0] == "-P"
    status = main(place, safe, line[1:] if safe else line)
    if status < 0:
        if status != -signal.SIGKILL:
            signal.signal(-status, signal.SIG_DFL)
        os.kill(os.getpid(), -status)
    sys.exit(status)
