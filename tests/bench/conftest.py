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


def make_settings(**own: Any) -> Namespace:
    """``own``: other settings, and what one benchmark has and others have not."""
    return Namespace(**{**SETTINGS, **own})


@pytest.fixture(params=["stock", "mhe_mul"])
def variant(request: pytest.FixtureRequest) -> str:
    """Stock fairseq and one of ours."""
    return request.param


class Here:
    """A pool without processes: starting them takes longer than measuring."""

    def __init__(self, _size: int, _context: Any, start: Callable[..., None], words: Any) -> None:
        start(*words)

    def shutdown(self) -> None: ...

    def submit(self, function: Callable[..., Any], *words: Any) -> Future[Any]:
        future: Future[Any] = Future()
        try:
            future.set_result(function(*words))
        except Exception as error:
            future.set_exception(error)
        return future


@pytest.fixture
def workers_here(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Workers in the process of the tests; test_turns.py has one in its own."""
    monkeypatch.setattr(command, "ProcessPoolExecutor", Here)
    monkeypatch.setattr(command, "end_with_parent", lambda: None)
    # Each measurement collects garbage before, which would look through all that tests have loaded.
    gc.freeze()
    yield
    gc.unfreeze()
    command._benchmarks.clear()
    logging.disable(logging.NOTSET)
