"""fairseq-train by one process or by several that work as one; and such trainings side by side."""

import time
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Protocol, TypeVar

from fairseq_mhe.runs.devices import Device, free_port
from fairseq_mhe.runs.processes import Child


class Trainers:
    """The processes of one training; the first's log is the training's."""

    def __init__(
        self, words: Sequence[str], log: Path, device: Device, slot: int, headline: str
    ) -> None:
        """Start them; ``headline``: what the log says of this start after its time."""
        environment, port = device.environment(slot), free_port()
        headline = f"{time.strftime('%Y-%m-%d %H:%M:%S')} fairseq-train {headline}"
        self._children = [
            Child(
                "fairseq_cli.train",
                [*words, *device.rank_flags(rank, port)],
                log if rank == 0 else log.with_name(f"{log.stem}.process{rank}.log"),
                device.threads,
                headline,
                environment,
            )
            for rank in range(device.workers)
        ]

    def over(self) -> bool:
        """Whether all have ended, or one has failed, for which the others would wait for ever."""
        failed = any(child.failed() for child in self._children)
        return failed or not any(child.running() for child in self._children)

    def new_lines(self) -> list[str]:
        """What the first has printed since the last call."""
        return self._children[0].new_lines()

    def check(self, what: str) -> None:
        """See that none has failed.

        Raises:
            UserError: one has; of several, what the one that failed said.
        """
        for child in sorted(self._children, key=lambda child: not child.failed()):
            child.check(what)

    def stop(self) -> None:
        """End them before their end."""
        for child in self._children:
            child.stop()


class UnderWay(Protocol):
    """A training that has begun."""

    def ended(self) -> bool:
        """Whether it is over, after showing what is new."""

    def finish(self) -> None:
        """See that it did its work.

        Raises:
            UserError: it did not.
        """

    def stop(self) -> None:
        """End it before its end."""


Waiting = TypeVar("Waiting")


def side_by_side(
    waiting: Iterable[Waiting],
    begin: Callable[[Waiting, int], UnderWay],
    slots: int,
    tick: Callable[[], None],
) -> None:
    """Do trainings, ``slots`` at a time; ``begin`` is given one and its slot.

    Raises:
        UserError: one of them failed. The others are stopped; what they had saved stays.
    """
    queue, free = deque(waiting), list(reversed(range(slots)))
    active: dict[int, UnderWay] = {}
    try:
        while queue or active:
            while queue and free:
                slot = free.pop()
                active[slot] = begin(queue.popleft(), slot)
            time.sleep(0.2)
            for slot, training in list(active.items()):
                if training.ended():
                    free.append(slot)
                    del active[slot]
                    training.finish()
            tick()
    finally:
        for training in active.values():
            training.stop()
