"""Every run of the tests is the same: what they draw at random begins at a fixed seed."""

import gc
import signal
import threading

import pytest
import torch
from hypothesis import HealthCheck, settings

pytest_plugins = [
    "tests.fixtures.processes",
    "tests.fixtures.models",
    "tests.fixtures.checkpoints",
    "tests.fixtures.runs",
    "tests.fixtures.sandbox",
    "tests.fixtures.trained",
    "tests.fixtures.text",
]

# To search for new examples instead: pytest --hypothesis-profile=default
settings.register_profile(
    "repeatable", derandomize=True, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("repeatable")


def pytest_sessionstart() -> None:
    """Collecting makes many objects that stay: to look through them took a quarter of the time."""
    gc.disable()


def pytest_collection_finish() -> None:
    """What is collected is not looked through again."""
    gc.freeze()
    gc.enable()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Those marked ``early`` first, so that no process waits for another's."""
    items.sort(key=lambda item: item.get_closest_marker("early") is None)


@pytest.fixture(autouse=True)
def fixed_seed() -> None:
    """Models and inputs that a test makes without a generator of its own."""
    torch.manual_seed(0)


# A run in the background ignores Ctrl-C, and all that it starts would: tests of Ctrl-C would hang.
if threading.current_thread() is threading.main_thread():
    signal.signal(signal.SIGINT, signal.default_int_handler)
