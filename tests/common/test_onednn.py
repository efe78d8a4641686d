"""What oneDNN compiled for a shape is still there when the shape comes again."""

from __future__ import annotations

import os

import pytest
import torch

from fairseq_mhe.common import onednn
from fairseq_mhe.common.onednn import keep_compiled_products
from tests.fixtures.processes import python

CAPACITY = "ONEDNN_PRIMITIVE_CACHE_CAPACITY"
#: 1,100 shapes, more than oneDNN keeps by itself, twice; a number of columns that no model has.
SCRIPT = """
import sys, torch
from fairseq_mhe.common import onednn

onednn.memory = lambda: 2**40  # enough, whatever the machine has
if sys.argv[1] == "keep":
    onednn.keep_compiled_products()
weight = torch.ones(10, 10, dtype=torch.bfloat16)
for turn in ("first", "second"):
    print(turn, flush=True)
    for rows in range(100, 1200):
        torch.ones(rows, 10, dtype=torch.bfloat16) @ weight
"""


def _compiled(how: str) -> tuple[int, int]:
    """How many products were compiled the first and the second time that their shapes came."""
    clean = {name: value for name, value in os.environ.items() if "DNN" not in name}
    done = python(SCRIPT, how, env={**clean, "ONEDNN_VERBOSE": "profile_create"})
    assert done.returncode == 0, done.stderr
    first, second = done.stdout.split("second\n")
    return first.count("create:cache_miss"), second.count("create:cache_miss")


@pytest.mark.skipif(
    not torch.ops.mkldnn._is_mkldnn_bf16_supported(),
    reason="this processor has no instructions for bfloat16, and oneDNN compiles nothing for it",
)
def test_shapes_that_come_again_are_not_compiled_again() -> None:
    assert _compiled("plain") == (1100, 1100), "oneDNN keeps more by itself now: see onednn.py"
    assert _compiled("keep") == (1100, 0)


def _chosen(monkeypatch: pytest.MonkeyPatch, gigabytes: float, cores: int) -> int:
    monkeypatch.delenv(CAPACITY, raising=False)
    monkeypatch.setattr(onednn, "memory", lambda: int(gigabytes * 1e9))
    monkeypatch.setattr(onednn, "cores", lambda: cores)
    keep_compiled_products()
    return int(os.environ[CAPACITY])


def test_as_many_as_the_memory_allows(monkeypatch: pytest.MonkeyPatch) -> None:
    assert _chosen(monkeypatch, 256, cores=2) == 8192
    assert _chosen(monkeypatch, 16, cores=2) == 5000
    assert _chosen(monkeypatch, 16, cores=4) == 2500, "as many trainings may go side by side"
    assert _chosen(monkeypatch, 1, cores=2) == 1024, "never fewer than oneDNN's own"


@pytest.mark.parametrize("command", [True, False])
def test_a_command_of_fairseqs_keeps_them_and_a_host_program_is_left_alone(command: bool) -> None:
    """Neither to import the package nor to build a model changes its environment."""
    script = "import fairseq_cli, fairseq_mhe, os" if command else "import fairseq_mhe, os"
    build = "from tests.fixtures.models import make_model; make_model()"
    clean = {name: value for name, value in os.environ.items() if "DNN" not in name}
    done = python(f"{script}; {build}; print({CAPACITY!r} in os.environ)", env=clean)
    assert done.stdout.strip() == str(command), done.stderr


@pytest.mark.parametrize("name", [CAPACITY, "DNNL_PRIMITIVE_CACHE_CAPACITY"])
def test_a_users_own_choice_is_left_alone(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.delenv(CAPACITY, raising=False)
    monkeypatch.setenv(name, "7")
    keep_compiled_products()
    assert os.environ[name] == "7"
    assert (CAPACITY in os.environ) == (name == CAPACITY)
