"""Variants take turns in changing order, and errors name the variant."""

import os
import signal
from typing import Any

import pytest
import torch

from fairseq_mhe.bench.generation import GenerationBenchmark
from fairseq_mhe.bench.run import measure, workers
from fairseq_mhe.common.errors import ErrorExit, UserError
from tests.bench.conftest import make_settings

CELL = {"beam": 2, "length": 4, "batch": 1, "dtype": "float32"}


class Scripted:
    """A benchmark that logs its calls; ``script`` has an error for a method that shall fail."""

    def __init__(self, name: str, log: list, script: dict[str, Any]) -> None:
        self.name, self.log, self.script = name, log, script

    def begin(self, cell: Any) -> Any:
        return self._call("begin")

    def turn(self) -> Any:
        return self._call("turn", {"total": 1.0})

    def result(self) -> Any:
        return self._call("result", {"units": 6})

    def _call(self, method: str, result: Any = None) -> Any:
        self.log.append((self.name, method))
        if method in self.script:
            raise self.script[method]
        return result


def run(repetitions: int = 3, **scripts: dict):
    log: list = []

    def make(name: str, _settings: Any) -> Scripted:
        return Scripted(name, log, scripts[name])

    with workers(dict.fromkeys(scripts, make), make_settings()) as started:  # type: ignore[arg-type]
        return measure(started, CELL, repetitions, log.append), log


@pytest.mark.usefixtures("inline_workers")
class TestTurns:
    def test_each_round_times_every_variant_and_begins_with_another(self) -> None:
        results, log = run(3, stock={}, mha={}, sha={})
        assert log[:3] == [(name, "begin") for name in ("stock", "mha", "sha")]
        order = [entry[0] for entry in log if isinstance(entry, tuple) and entry[1] == "turn"]
        assert order == ["stock", "mha", "sha", "mha", "sha", "stock", "sha", "stock", "mha"]
        measured = {"seconds": {"total": [1.0] * 3}, "units": 6}
        assert all(result == measured for result in results.values())
        assert [entry for entry in log if isinstance(entry, int)] == [*range(1, 10)]

    @pytest.mark.parametrize(
        ("error", "kind", "text"),
        [
            (ErrorExit("not like that"), UserError, "^not like that$"),
            (UserError("no such thing"), UserError, "no such thing"),
            (RuntimeError("shapes differ"), RuntimeError, "shapes differ"),
            (RuntimeError("Library libcublas.so.12 is"), UserError, "^mha: Library .* pip install"),
            (torch.OutOfMemoryError("memory.\nTried"), UserError, r"mha ran .* \(memory\.\): le"),
            (RuntimeError("can't allocate memory: you"), UserError, "mha ran out of memory"),
        ],
    )
    def test_errors_end_the_run(self, error: BaseException, kind: type, text: str) -> None:
        with pytest.raises(kind, match=text):
            run(1, stock={}, mha={"begin": error})


class Logging(GenerationBenchmark):
    """A benchmark that logs its calls."""

    def prepare(self, cell: Any) -> None:
        self.log.append("prepare")

    def repetition(self) -> dict[str, float]:
        self.log.append("repetition")
        return {"total": float(len(self.log))}


@pytest.mark.parametrize("ours", [True, False])
def test_begin_warms_up_and_only_its_peak_returns_freed_memory(
    ours: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    benchmark = Logging("mha" if ours else "stock", make_settings())
    benchmark.log = log = []
    keep = lambda *largest: log.append(largest) or True  # noqa: E731
    monkeypatch.setattr("fairseq_mhe.bench.benchmark.keep_freed_memory", keep)
    benchmark.begin(CELL)
    peak = [(2**20,), "repetition", ()] if ours else ["repetition"]
    assert log == ["prepare", "repetition", "prepare", *peak]
    log.clear()
    benchmark.begin(CELL)  # the second cell
    benchmark.turn()
    assert log == ["prepare", *peak, "repetition"]


def test_a_worker_process_measures_and_its_death_is_an_error() -> None:
    with workers({"stock": GenerationBenchmark}, make_settings()) as started:
        result = measure(started, CELL, 1, lambda _: None)["stock"]
        assert result["seconds"]["total"][0] > result["seconds"]["reorder"][0] > 0
        assert result["units"] == 1
        (process,) = started["stock"]._processes.values()
        assert process.pid != os.getpid()
        # `end_with_parent` ran, so that the process will not outlive a killed command.
        handler = started["stock"].submit(signal.getsignal, signal.SIGINT).result()
        assert handler is signal.SIG_IGN
        os.kill(process.pid, signal.SIGKILL)
        process.join()
        with pytest.raises(UserError, match="the process of stock was killed"):
            measure(started, CELL, 1, lambda _: None)
