"""Settings so small that a model is built and measured in a fraction of a second."""

import gc
import logging
from argparse import Namespace
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from typing import Any

import pytest

from fairseq_mhe.bench import run as command

VOCABULARY = 120
SETTINGS = {"row": "tiny", "device": "cpu", "vocab_size": VOCABULARY, "threads": 1, "seed": 1}


def make_settings(**changes: Any) -> Namespace:
    """Return `SETTINGS` with ``changes``, which also are the options of one benchmark."""
    return Namespace(**{**SETTINGS, **changes})


@pytest.fixture(params=["stock", "mhe_mul"])
def variant(request: pytest.FixtureRequest) -> str:
    """Stock fairseq, and one of our kinds."""
    return request.param


class InlinePool:
    """A pool that calls functions itself: starting a process takes longer than measuring."""

    def __init__(self, _size: int, _context: Any, start: Callable[..., None], args: Any) -> None:
        start(*args)

    def shutdown(self) -> None: ...

    def submit(self, function: Callable[..., Any], *args: Any) -> Future[Any]:
        future: Future[Any] = Future()
        try:
            future.set_result(function(*args))
        except Exception as error:
            future.set_exception(error)
        return future


@pytest.fixture
def inline_workers(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Benchmarks measure in the tests' process; test_turns.py also has a worker process."""
    monkeypatch.setattr(command, "ProcessPoolExecutor", InlinePool)
    monkeypatch.setattr(command, "end_with_parent", lambda: None)
    # Each measurement collects garbage first; frozen, the tests' own objects are not searched.
    gc.freeze()
    yield
    command._benchmarks.clear()
    logging.disable(logging.NOTSET)
