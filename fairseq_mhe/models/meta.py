"""Models of parameters without memory, for counting."""

import contextlib
import re
from collections.abc import Iterator
from typing import Any
from unittest.mock import patch

import torch
from torch import nn


@contextlib.contextmanager
def without_memory() -> Iterator[None]:
    """Build what is counted; torch draws no weights, which would take half of the time."""
    draws = [name for name in vars(nn.init) if re.fullmatch(r"[a-z]\w*_", name)]
    nothing: Any = dict.fromkeys(draws, lambda tensor, *_, **__: tensor)
    with torch.device("meta"), patch.multiple(nn.init, **nothing):
        yield
