"""Ends a child process when its parent has ended, even by kill -9: a thread of the child waits.

Linux's PR_SET_PDEATHSIG does not fit: it signals the end of the thread or fork server that started
the child, not the end of the parent. As a script, ``child.py MODULE ARGUMENT...`` runs a module.
"""

import multiprocessing
import os
import runpy
import signal
import sys
import threading
from collections.abc import Callable


def end_with_parent() -> None:
    """Make a worker of multiprocessing ignore Ctrl-C, which its parent handles, and end with it."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    parent = multiprocessing.parent_process()
    _exit_after(parent.join)  # type: ignore[union-attr]  # a worker has a parent


def _exit_after(wait: Callable[[], object]) -> None:
    def wait_and_exit() -> None:
        wait()
        os._exit(1)

    threading.Thread(target=wait_and_exit, daemon=True).start()


if __name__ == "__main__":
    # Standard input is a pipe from the parent, so this read returns when the parent has ended.
    _exit_after(lambda: os.read(0, 1))
    del sys.argv[0]
    runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)
