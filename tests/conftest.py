"""How all tests are loaded, ordered and handed out; what they share is in fixtures/."""

import gc
import signal
import threading

import pytest

pytest_plugins = ["tests.fixtures.processes"]
FIXTURES = [
    f"tests.fixtures.{name}"
    for name in ("repeatable", "models", "checkpoints", "refusals", "runs", "trained", "text")
]


def pytest_configure(config: pytest.Config) -> None:
    """Load fixtures, and with them fairseq: but not to hand tests to others, who wait for it."""
    if config.getoption("numprocesses", None) and not hasattr(config, "workerinput"):
        return
    pytest.register_assert_rewrite(*FIXTURES)
    for name in FIXTURES:
        config.pluginmanager.import_plugin(name)


def pytest_sessionstart() -> None:
    """No garbage collection while pytest collects tests: it took a quarter of the time."""
    gc.disable()


def pytest_collection_finish() -> None:
    """Collect garbage again, but leave the collected tests out."""
    gc.freeze()
    gc.enable()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Run tests marked ``early`` first, so that no process waits for another."""
    items.sort(key=lambda item: item.get_closest_marker("early") is None)


# A run in the background ignores Ctrl-C, and all that it starts would: tests of Ctrl-C would hang.
if threading.current_thread() is threading.main_thread():
    signal.signal(signal.SIGINT, signal.default_int_handler)
