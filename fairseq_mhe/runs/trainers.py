"""fairseq-train by one process or, on several devices, by several that work as one."""

import time
from collections.abc import Sequence
from pathlib import Path

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
