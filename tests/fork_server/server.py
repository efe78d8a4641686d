"""Runs ``python -m MODULE ARGUMENT...`` for tests in a fork of a process that has loaded fairseq.

Loading torch and fairseq takes longer than most commands of the tests. The server loads no part of
fairseq_mhe or fairseq_cli, so a command starts as in a new process.
"""

import atexit
import contextlib
import gc
import importlib
import itertools
import json
import logging
import os
import random
import runpy
import select
import signal
import socket
import sys
import threading
from typing import Any

MODULES = (
    *("fairseq.binarizer", "fairseq.model_parallel.megatron_trainer", "fairseq.options"),
    *("fairseq.sequence_generator", "fairseq.sequence_scorer", "fairseq.trainer"),
    *("hydra.experimental", "matplotlib.figure", "rich.progress", "sacrebleu", "sacremoses"),
    *("sentencepiece", "subword_nmt.apply_bpe", "torch._dynamo", "torch.distributed.fsdp"),
)


def load() -> None:
    """Import `MODULES`, and have hydra compose options once, which fills its parser's caches."""
    for name in MODULES:
        importlib.import_module(name)
    from fairseq.dataclass.utils import convert_namespace_to_omegaconf
    from fairseq.options import get_training_parser, parse_args_and_arch

    words = ["data", "--arch", "transformer", "--optimizer", "adam"]
    convert_namespace_to_omegaconf(parse_args_and_arch(get_training_parser(), words))
    logging.root.handlers.clear()
    logging.root.setLevel(logging.WARNING)
    gc.collect()
    gc.freeze()
    gc.set_threshold(50_000, 20)  # looking for garbage took a twelfth of the time


def receive(connection: socket.socket) -> tuple[dict[str, Any], list[int]]:
    """Return a request, and the client's standard streams as file descriptors."""
    header, streams, _, _ = socket.recv_fds(connection, 4, 3)
    with connection.makefile("rb") as stream:
        return json.loads(stream.read(int.from_bytes(header, "big"))), streams


def become(request: dict[str, Any], streams: list[int]) -> None:
    """Give this fork the streams, folder, environment and arguments of the client."""
    os.setsid()
    for number, stream in enumerate(streams):
        os.dup2(stream, number)
        os.close(stream)
    os.chdir(request["folder"])
    os.environ.clear()
    os.environ.update(request["environment"])
    unbuffered = bool(os.environ.get("PYTHONUNBUFFERED"))
    sys.stdout.reconfigure(write_through=unbuffered, line_buffering=os.isatty(1))
    first = [] if request["safe_path"] else [request["folder"]]
    named = filter(None, os.environ.get("PYTHONPATH", "").split(":"))
    sys.path[:] = [*first, *named, *sys.path]
    importlib.invalidate_caches()
    sys.argv = request["words"]
    import numpy as np
    import torch  # `load` has imported it

    random.seed()
    np.random.seed()
    torch.default_generator.seed()
    torch.set_num_threads(int(os.environ.get("OMP_NUM_THREADS") or len(os.sched_getaffinity(0))))


class Server:
    """Forks for each request, until the process of pytest ends."""

    def __init__(self, listener: socket.socket, pytest_process: int) -> None:
        self.listener, self.pytest_pidfd = listener, os.pidfd_open(pytest_process)
        #: Process id -> connection to its client, its pidfd, and the client's session.
        self.running: dict[int, tuple[socket.socket, int, int]] = {}

    def serve(self) -> bool:
        """Return True in a fork that shall run its command, False in the server after the tests."""
        while True:
            # A connection is ready when its client has ended, a pidfd when its process has.
            commands = [(client, pidfd) for client, pidfd, _ in self.running.values()]
            watched = [self.listener, self.pytest_pidfd, *itertools.chain(*commands)]
            ready, _, _ = select.select(watched, [], [])
            # Ended processes come first: the next request may rely on their absence.
            for process, (client, pidfd, _) in [*self.running.items()]:
                if process in self.running and (client in ready or pidfd in ready):
                    self.ended(process, killed=client in ready)
            if self.pytest_pidfd in ready:
                while self.running:
                    self.ended(next(iter(self.running)), killed=True)
                return False
            if self.listener in ready and self.fork():
                return True

    def fork(self) -> bool:
        """Accept a request and fork; return True in the fork."""
        client, _ = self.listener.accept()
        try:
            request, streams = receive(client)
        except (OSError, ValueError):  # the client was killed before it sent its request
            client.close()
            return False
        process = os.fork()
        if not process:
            become(request, streams)
            return True
        for stream in streams:
            os.close(stream)
        self.running[process] = client, os.pidfd_open(process), request["session"]
        with contextlib.suppress(OSError):  # a killed client is noticed by `serve`
            client.sendall(f"{process}\n".encode())
        return False

    def ended(self, process: int, killed: bool) -> None:
        """Send the exit status; if the client was ``killed``, first kill the process's session."""
        client, pidfd, _ = self.running.pop(process)
        if killed:
            # The group has the clients of commands that the process started; these end below.
            try:
                os.killpg(process, signal.SIGKILL)
            except ProcessLookupError:  # it has not called setsid yet
                os.kill(process, signal.SIGKILL)
            for other, (_, _, session) in [*self.running.items()]:
                if session == process and other in self.running:
                    self.ended(other, killed=True)
        code = os.waitstatus_to_exitcode(os.waitpid(process, 0)[1])
        with contextlib.suppress(OSError):
            client.sendall(f"{code}\n".encode())
        client.close()
        os.close(pidfd)


def run(words: list[str]) -> int:
    """Run a module as ``python -m``, code as ``python -c``, or a script; return the exit status."""
    kind, what, *rest = words
    sys.argv = [kind, *rest]
    try:
        if kind == "-c":
            exec(what, vars(sys.modules["__main__"]))  # noqa: S102
        elif kind == "-m":
            runpy.run_module(what, run_name="__main__", alter_sys=True)
        else:
            sys.argv = words
            runpy.run_path(kind, run_name="__main__")
    except SystemExit as end:
        if end.code is None or isinstance(end.code, int):
            return (end.code or 0) & 0xFF
        print(end.code, file=sys.stderr)
        return 1
    except BaseException as error:
        sys.excepthook(*sys.exc_info())
        sys.stderr.flush()
        if isinstance(error, KeyboardInterrupt):
            signal.signal(signal.SIGINT, signal.SIG_DFL)
            os.kill(os.getpid(), signal.SIGINT)
        return 1
    return 0


if __name__ == "__main__":
    _, descriptor, pytest_process, stand_in = sys.argv
    del sys.path[0]
    load()
    # Compiled code of the tests and of ours stays until all tests end.
    sys.dont_write_bytecode, sys.pycache_prefix = False, f"{stand_in}-bytecode"
    # Commands that a command starts use this server, too.
    sys.executable = stand_in
    if Server(socket.socket(fileno=int(descriptor)), int(pytest_process)).serve():
        status = run(sys.argv)
        # Python's exit, but without its tear-down of all modules, which takes a third of a second.
        threading._shutdown()
        atexit._run_exitfuncs()
        for stream in (sys.stdout, sys.stderr):
            stream.flush()
        os._exit(status)
