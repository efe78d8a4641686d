"""How long a job of many trainings and translations still takes, from how long they took so far."""

import time
from collections.abc import Mapping

#: What translating and scoring takes of a training's time, until the first has shown it.
_SHARE = 0.05


class WholeJob:
    """All runs of a job, of which some train at a time, and then translate one after the other.

    ``updates``: of each run that is not finished.
    """

    def __init__(self, updates: Mapping[str, int]) -> None:
        self._updates = dict(updates)
        self._made: dict[str, int] = {}
        self._made_here = self._translated = 0
        self._training = self._translating = 0.0  # seconds
        self._since: float | None = None

    def trains(self) -> None:
        """From now on time passes for trainings."""
        self.rests()
        self._since = time.monotonic()

    def trained(self, name: str, updates: int, begins: bool = False) -> None:
        """A run has so many updates, when it ``begins`` to train in this process or later."""
        if not begins:
            self._made_here += max(0, updates - self._made.get(name, 0))
        self._made[name] = updates

    def rests(self) -> None:
        """From now on time passes for something else."""
        if self._since is not None:
            self._training += time.monotonic() - self._since
            self._since = None

    def translated(self, runs: int, seconds: float) -> None:
        """So many more runs are translated and scored, in so much time."""
        self._translated += runs
        self._translating += seconds

    def left(self) -> float | None:
        """Seconds, about; None before anything was trained."""
        spent = self._training
        if self._since is not None:
            spent += time.monotonic() - self._since
        if not self._made_here:
            return None
        missing = sum(max(0, n - self._made.get(name, 0)) for name, n in self._updates.items())
        per_update = spent / self._made_here
        average = sum(self._updates.values()) / len(self._updates)
        afterwards = _SHARE * average * per_update
        if self._translated:
            afterwards = self._translating / self._translated
        return missing * per_update + (len(self._updates) - self._translated) * afterwards
