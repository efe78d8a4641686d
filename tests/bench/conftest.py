"""Settings so small that a model is built and measured in a fraction of a second."""

import gc
import logging
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from dataclasses import replace
from typing import Any

import pytest

from fairseq_mhe.bench import meters, models
from fairseq_mhe.bench import run as command
from fairseq_mhe.bench.benchmark import Benchmark
from fairseq_mhe.bench.variants import Variant

VOCABULARY = 120
OURS, STOCK = Variant("mhe_mul", "mhe_mul"), Variant("stock", is_tuned=False)
each_variant = pytest.mark.parametrize("variant", [STOCK, OURS], ids=lambda one: one.name)


def small(benchmark: type[Benchmark], **changes: Any) -> Any:
    """Return a benchmark's options in the smallest size, with ``changes``."""
    sizes = {"row": "tiny", "device": "cpu", "vocab_size": VOCABULARY, "threads": 1}
    return replace(benchmark.options(), **{**sizes, **changes})


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
    """Benchmarks measure in the tests' process."""
    monkeypatch.setattr(command, "ProcessPoolExecutor", InlinePool)
    monkeypatch.setattr(command, "end_with_parent", lambda: None)
    monkeypatch.setattr(Variant, "begin", lambda self: None)  # sets variables of the process
    monkeypatch.setattr(meters, "_CPU_SIDE", 64)  # a larger product in bf16 may take seconds
    monkeypatch.setattr(models, "_PAIRS", 200)  # enough for tests, not for similar lengths
    # Each measurement collects garbage first; frozen, the tests' own objects are not searched.
    gc.freeze()
    yield
    command._benchmarks.clear()
    logging.disable(logging.NOTSET)
