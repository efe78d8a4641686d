"""Models without memory, for counting parameters."""

import contextlib
import re
from collections.abc import Iterator
from typing import Any
from unittest.mock import patch

import torch
from torch import nn


@contextlib.contextmanager
def without_memory() -> Iterator[None]:
    """Build models on the meta device without drawing weights; that would take half of the time."""
    initialisers = [name for name in vars(nn.init) if re.fullmatch(r"[a-z]\w*_", name)]
    do_nothing: Any = dict.fromkeys(initialisers, lambda tensor, *_, **__: tensor)
    with torch.device("meta"), patch.multiple(nn.init, **do_nothing):
        yield
