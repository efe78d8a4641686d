"""A child process ends with its parent, even by kill -9. As a script: child.py MODULE WORD...

A thread of the child waits. Linux' own signal (PR_SET_PDEATHSIG) comes when the parent's thread
ends, and to children of a fork server when that ends.
"""

import multiprocessing
import os
import runpy
import signal
import sys
import threading
from collections.abc import Callable


def end_with_parent() -> None:
    """In a worker of multiprocessing: leave Ctrl-C to the parent, and end when that has ended."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    parent = multiprocessing.parent_process()
    _end_after(parent.join)  # type: ignore[union-attr]  # a worker has a parent


def _end_after(wait: Callable[[], object]) -> None:
    def end() -> None:
        wait()
        os._exit(1)

    threading.Thread(target=end, daemon=True).start()


if __name__ == "__main__":
    # Standard input is a pipe whose other end the parent holds.
    _end_after(lambda: os.read(0, 1))
    del sys.argv[0]
    runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)
