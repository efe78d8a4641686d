"""One process for each variant, so that memory is its own and all of them can take turns."""

from __future__ import annotations

import contextlib
import gc
import logging
import multiprocessing
import signal
import traceback
import warnings
from dataclasses import dataclass
from multiprocessing.connection import Connection
from typing import Any

import torch

from fairseq_mhe.bench.attention import AttentionWorkload
from fairseq_mhe.bench.corpus import CorpusWorkload
from fairseq_mhe.bench.ctranslate import CTranslate2Workload
from fairseq_mhe.bench.generation import GenerationWorkload
from fairseq_mhe.bench.memory import PeakMemory
from fairseq_mhe.bench.settings import CTRANSLATE2, Settings
from fairseq_mhe.bench.training import TrainingWorkload
from fairseq_mhe.bench.workload import Workload
from fairseq_mhe.common.errors import ErrorExit, UserError

WORKLOADS: dict[str, type[Workload]] = {
    "attention": AttentionWorkload,
    "training": TrainingWorkload,
    "generation": GenerationWorkload,
    "corpus": CorpusWorkload,
}
OK, OUT_OF_MEMORY, DIED, REFUSED, FAILED = "ok", "out of memory", "died", "refused", "failed"
_OUT_OF_MEMORY_MESSAGES = ("out of memory", "can't allocate memory", "not enough memory")


@dataclass(frozen=True)
class Answer:
    """What a worker says to a command: ``OK`` and a value, or what went wrong and a text."""

    status: str
    value: Any = None


class Session:
    """What happens inside a worker: the commands, on one workload."""

    def __init__(self, variant: str, settings: Settings) -> None:
        self._variant = variant
        self._settings = settings
        self._memory = PeakMemory(torch.device(settings.device))
        self._workload: Workload | None = None
        self._cell: dict[str, Any] = {}
        self._rehearsed = False
        self._cold = True

    def answer(self, command: str, *arguments: Any) -> Answer:
        """Run the method of that name; nothing but an interrupt is raised."""
        try:
            return Answer(OK, getattr(self, command)(*arguments))
        except UserError as error:
            return Answer(REFUSED, str(error))
        except ErrorExit as error:  # how bad options leave fairseq's build_model
            return Answer(REFUSED, error.message)
        except (RuntimeError, MemoryError) as error:
            if isinstance(error, MemoryError) or any(
                text in str(error) for text in _OUT_OF_MEMORY_MESSAGES
            ):
                # Only now that the traceback's frames are left behind can their tensors go.
                return Answer(OUT_OF_MEMORY, str(error).split("\n")[0])
            return Answer(FAILED, traceback.format_exc())
        except Exception:
            return Answer(FAILED, traceback.format_exc())

    def prepare(self, cell: dict[str, Any]) -> None:
        """Make everything ready for a cell; memory counts from here."""
        if self._workload is None:
            make = (
                CTranslate2Workload
                if self._variant == CTRANSLATE2
                else WORKLOADS[self._settings.bench]
            )
            self._workload = make(self._variant, self._settings)
        self._workload.prepare(cell)
        self._memory.start()
        self._cell, self._cold = cell, True

    def repetition(self) -> dict[str, float]:
        """Seconds by part; the first time and after :meth:`release`, the work is done once before it is timed."""
        assert self._workload is not None  # noqa: S101 - prepare comes first
        if not self._rehearsed:
            # Libraries load code and make buffers of their own when they are first used: no cell's
            # memory.
            self._workload.repetition()
            self.prepare(self._cell)
            self._rehearsed = True
        if self._cold:
            self._workload.repetition()
            self._cold = False
        return self._workload.repetition()

    def release(self) -> None:
        """Give memory that is not in use back to the device, for the others."""
        if self._settings.device == "cuda":
            gc.collect()
            torch.cuda.empty_cache()
            self._cold = True

    def facts(self) -> dict[str, Any]:
        """What the workload knows, and the peak of memory."""
        assert self._workload is not None  # noqa: S101 - prepare comes first
        return {"peak_bytes": self._memory.peak(), **self._workload.facts()}


class Worker:
    """A session in a process of its own, started when it is first needed and again after it died."""

    def __init__(self, variant: str, settings: Settings) -> None:
        self.variant = variant
        self._settings = settings
        self._process: multiprocessing.process.BaseProcess | None = None
        self._connection: Connection | None = None

    def send(self, command: str, *arguments: Any) -> None:
        """Ask for something; :meth:`receive` waits for the answer."""
        if self._process is None or not self._process.is_alive():
            self._start()
        assert self._connection is not None  # noqa: S101 - _start has made it
        with contextlib.suppress(OSError):  # dead meanwhile, which receive will notice
            self._connection.send((command, *arguments))

    def receive(self) -> Answer:
        """The answer; ``DIED`` where the process ended before it gave one."""
        assert self._process is not None  # noqa: S101 - send comes first
        assert self._connection is not None  # noqa: S101 - as above
        try:
            return self._connection.recv()
        except (EOFError, OSError):
            self._process.join()
            code = self._process.exitcode
            killed = code == -signal.SIGKILL
            return Answer(
                DIED,
                "killed, perhaps because memory ran out"
                if killed
                else f"ended with exit code {code}",
            )

    def ask(self, command: str, *arguments: Any) -> Answer:
        """Ask, and wait for the answer."""
        self.send(command, *arguments)
        return self.receive()

    def stop(self) -> None:
        """End the process."""
        if self._process is not None:
            self._process.kill()
            self._process.join()

    def _start(self) -> None:
        # Forked from a server that has imported everything but never computed: quick, and safe with
        # threads and CUDA.
        context = multiprocessing.get_context("forkserver")
        context.set_forkserver_preload([__name__])
        self._connection, theirs = context.Pipe()
        self._process = context.Process(
            target=_serve, args=(theirs, self.variant, self._settings), daemon=True
        )
        self._process.start()
        theirs.close()


def _serve(connection: Connection, variant: str, settings: Settings) -> None:
    """Answer commands until the other side goes away."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the parent's to handle
    logging.disable(logging.WARNING)
    warnings.simplefilter("ignore")
    torch.set_num_threads(settings.threads)
    session = Session(variant, settings)
    with contextlib.suppress(EOFError, OSError):
        while True:
            command, *arguments = connection.recv()
            connection.send(session.answer(command, *arguments))
