"""Variants take turns in changing order, and errors name the variant."""

import os
import signal
from typing import Any
from unittest.mock import Mock, call

import pytest
import torch

from fairseq_mhe.bench.benchmark import WARM_UPS
from fairseq_mhe.bench.generation import GenerationBenchmark
from fairseq_mhe.bench.run import measure, workers
from fairseq_mhe.bench.variants import Variant
from fairseq_mhe.common.errors import UserError
from tests.bench.conftest import OURS, STOCK, small

CELL = {"beam": 2, "length": 4, "batch": 1, "dtype": "float32"}


def run(repetitions: int = 3, **errors: dict[str, BaseException]) -> tuple[Any, list]:
    """Return the measurements and the calls of benchmarks, whose methods raise these errors."""
    log = Mock()

    def make(variant: Variant, _options: Any) -> Mock:
        name = variant.name
        benchmark: Mock = getattr(log, name)
        benchmark.turn.return_value, benchmark.result.return_value = {"total": 1.0}, {"units": 6}
        benchmark.configure_mock(**{f"{key}.side_effect": e for key, e in errors[name].items()})
        return benchmark

    made = Mock(of_variant=lambda _: make)
    with workers(made, [*map(Variant, errors)], small(GenerationBenchmark)) as started:
        return measure(started, CELL, repetitions, log.done), log.mock_calls


@pytest.mark.usefixtures("inline_workers")
class TestTurns:
    def test_each_round_times_every_variant_and_begins_with_another(self) -> None:
        results, log = run(3, stock={}, mha={}, sha={})
        assert log[:3] == [call.stock.begin(CELL), call.mha.begin(CELL), call.sha.begin(CELL)]
        order = [name.removesuffix(".turn") for name, *_ in log if name.endswith("turn")]
        assert order == ["stock", "mha", "sha", "mha", "sha", "stock", "sha", "stock", "mha"]
        measured = {"seconds": {"total": [1.0] * 3}, "units": 6}
        assert all(result == measured for result in results.values())
        assert [step for step in log if step[0] == "done"] == [call.done(i) for i in range(1, 10)]

    @pytest.mark.parametrize(
        ("error", "kind", "text"),
        [
            (UserError("no such thing"), UserError, "no such thing"),
            (RuntimeError("shapes differ"), RuntimeError, "shapes differ"),
            (RuntimeError("Library libcublas.so.12 is"), UserError, "^mha: Library .* pip install"),
            (torch.OutOfMemoryError("memory.\nTried"), UserError, r"mha ran .* \(memory\.\): le"),
            (RuntimeError("can't allocate memory: you"), UserError, "mha ran out of memory"),
            (RuntimeError("CUDA: an illegal memory access"), RuntimeError, "illegal memory access"),
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


@pytest.mark.parametrize("variant", [STOCK, OURS], ids=lambda variant: variant.name)
def test_begin_warms_up_and_only_a_tuned_peak_returns_freed_memory(
    variant: Variant, monkeypatch: pytest.MonkeyPatch
) -> None:
    benchmark = Logging(variant, small(GenerationBenchmark))
    benchmark.log = log = []
    keep = lambda *largest: log.append(largest) or True  # noqa: E731
    monkeypatch.setattr("fairseq_mhe.bench.benchmark.keep_freed_memory", keep)
    benchmark.begin(CELL)
    peak = [(2**20,), "repetition", ()] if variant.is_tuned else ["repetition"]
    first = ["prepare", *["repetition"] * WARM_UPS, *peak]
    assert log == ["prepare", "repetition", *first], "libraries start by a small pass"
    log.clear()
    benchmark.begin(CELL)  # the second cell
    assert log == first
    log.clear()
    benchmark.turn()
    assert log == ["repetition"]


def test_a_worker_process_measures_and_its_death_is_an_error() -> None:
    options = small(GenerationBenchmark)
    with workers(GenerationBenchmark, [STOCK], options) as started:
        result = measure(started, CELL, 1, lambda _: None)["stock"]
        assert result["seconds"]["total"][0] > 0
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
