"""When a training ends before its last update: its validation loss no longer falls.

As fairseq's --patience, which forgets at each restart how long it has waited; here the log tells.
"""

import math
import re
from collections.abc import Mapping

_SAVED = re.compile(r"\| Saved checkpoint .* \(epoch \d+ @ (\d+) updates")


class Patience:
    """The losses at the ends of epochs, of a run that ends after ``most`` without a new lowest.

    With ``most`` 0 it never does.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._losses: dict[int, tuple[int, float]] = {}  # epoch -> updates, loss

    def see(self, valid: Mapping[str, float]) -> None:
        """Note what fairseq-train logged of a validation; a later one of the same epoch counts."""
        epoch, updates = int(valid["epoch"]), int(valid["valid_num_updates"])
        self._losses[epoch] = updates, valid["valid_loss"]

    def forget(self, updates: int) -> None:
        """Leave out the validation after so many updates: it was not at the end of an epoch."""
        self._losses = {e: found for e, found in self._losses.items() if found[0] != updates}

    def is_over(self, made: int) -> bool:
        """Whether a training whose last checkpoint has ``made`` updates is at its end."""
        lowest, waited = math.inf, 0
        for _, (updates, loss) in sorted(self._losses.items()):
            waited = 0 if loss < lowest else waited + 1
            lowest = min(lowest, loss)
            if 0 < self._most <= waited:
                return made >= updates
        return False


def saved_updates(line: str) -> int | None:
    """The updates of the checkpoint that fairseq-train says it has saved."""
    match = _SAVED.search(line)
    return int(match[1]) if match else None
