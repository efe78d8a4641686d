"""One process for each variant, so that memory is its own and all of them can take turns."""

import contextlib
import functools
import gc
import logging
import multiprocessing
import signal
import traceback
import warnings
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from multiprocessing.connection import Connection
from typing import Any

import torch

from fairseq_mhe.bench.benchmark import Cell, Settings, Workload
from fairseq_mhe.bench.meters import PeakMemory
from fairseq_mhe.common.errors import ErrorExit, UserError

OK, OUT_OF_MEMORY, DIED, REFUSED, FAILED = "ok", "out of memory", "died", "refused", "failed"
_NO_MEMORY = ("out of memory", "can't allocate memory", "not enough memory")


@dataclass(frozen=True)
class Answer:
    """What a worker says to a command: ``OK`` and a value, or what went wrong and a text."""

    status: str
    value: Any = None


class Session:
    """What happens inside a worker: the commands, on one workload."""

    def __init__(self, make: type[Workload], variant: str, settings: Settings) -> None:
        self._make = functools.partial(make, variant, settings)
        self._cuda = settings.device == "cuda"
        self._memory = PeakMemory(torch.device(settings.device))
        self._rehearsed = False

    @functools.cached_property
    def workload(self) -> Workload:
        """Made at the first command that needs it, as making it can go wrong."""
        return self._make()

    def answer(self, command: str, *arguments: Any) -> Answer:
        """Run the method of that name; nothing but an interrupt is raised."""
        try:
            return Answer(OK, getattr(self, command)(*arguments))
        except UserError as error:
            return Answer(REFUSED, str(error))
        except ErrorExit as error:  # how bad options leave fairseq's own code
            return Answer(REFUSED, error.message)
        except Exception as error:
            text = str(error)
            told = isinstance(error, RuntimeError) and any(m in text for m in _NO_MEMORY)
            if told or isinstance(error, MemoryError):
                # Only now that the traceback's frames are left behind can their tensors go.
                return Answer(OUT_OF_MEMORY, text.split("\n")[0])
            return Answer(FAILED, traceback.format_exc())

    def prepare(self, cell: Cell) -> None:
        """Make everything ready for a cell; memory counts from here."""
        self.workload.prepare(cell)
        self._memory.start()
        self._cell, self._cold = cell, True

    def repetition(self) -> dict[str, float]:
        """Seconds by part; first and after `release`, the work is done once before it is timed."""
        if not self._rehearsed:
            # Libraries load code and make buffers of their own when they are first used: no cell's
            # memory.
            self.workload.repetition()
            self.prepare(self._cell)
            self._rehearsed = True
        if self._cold:
            self.workload.repetition()
            self._cold = False
        return self.workload.repetition()

    def release(self) -> None:
        """Give memory that is not in use back to the device, for the others."""
        if self._cuda:
            gc.collect()
            torch.cuda.empty_cache()
            self._cold = True

    def facts(self) -> dict[str, Any]:
        """What the workload knows, and the peak of memory."""
        return {"peak_bytes": self._memory.peak(), **self.workload.facts()}


class Worker:
    """A session in a process of its own, which starts again after it died."""

    def __init__(self, make: type[Workload], variant: str, settings: Settings) -> None:
        self._made_of = make, variant, settings
        self._start()

    def _start(self) -> None:
        # Forked from a server that has imported everything but never computed: quick, and safe with
        # threads and CUDA.
        context = multiprocessing.get_context("forkserver")
        context.set_forkserver_preload([__name__, self._made_of[0].__module__])
        self._connection, theirs = context.Pipe()
        arguments = (theirs, *self._made_of)
        self._process = context.Process(target=_serve, args=arguments, daemon=True)
        self._process.start()
        theirs.close()

    def send(self, command: str, *arguments: Any) -> None:
        """Ask for something; `receive` waits for the answer."""
        if not self._process.is_alive():
            self._start()
        with contextlib.suppress(OSError):  # dead meanwhile, which receive will notice
            self._connection.send((command, *arguments))

    def receive(self) -> Answer:
        """The answer; ``DIED`` where the process ended before it gave one."""
        try:
            return self._connection.recv()
        except (EOFError, OSError):
            self._process.join()
            code = self._process.exitcode
            killed = code == -signal.SIGKILL
            out_of_memory = "killed, perhaps because memory ran out"
            return Answer(DIED, out_of_memory if killed else f"ended with exit code {code}")

    def ask(self, command: str, *arguments: Any) -> Answer:
        """Ask, and wait for the answer."""
        self.send(command, *arguments)
        return self.receive()

    def stop(self) -> None:
        """End the process."""
        self._process.kill()
        self._process.join()


@contextlib.contextmanager
def workers(makes: Mapping[str, type[Workload]], settings: Settings) -> Iterator[dict[str, Worker]]:
    """A worker for each variant while the block runs."""
    started: dict[str, Worker] = {}
    try:
        for variant, make in makes.items():
            started[variant] = Worker(make, variant, settings)
        yield started
    finally:
        for worker in started.values():
            worker.stop()


def _serve(connection: Connection, make: type[Workload], variant: str, settings: Settings) -> None:
    """Answer commands until the other side goes away."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the parent's to handle
    logging.disable(logging.WARNING)
    warnings.simplefilter("ignore")
    torch.set_num_threads(settings.threads)
    session = Session(make, variant, settings)
    with contextlib.suppress(EOFError, OSError):
        while True:
            command, *arguments = connection.recv()
            connection.send(session.answer(command, *arguments))
