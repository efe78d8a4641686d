"""Every command rejects a bad checkpoint in one line and leaves nothing behind."""

import argparse
import io
import resource
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from fairseq import checkpoint_utils
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from fairseq_mhe.checkpoints.checkpoint import save_checkpoint, updates_made
from fairseq_mhe.common.checkpoint_files import model_options, read_checkpoint
from fairseq_mhe.common.errors import UserError
from fairseq_mhe.common.files import atomic_path
from fairseq_mhe.models.tasks import make_task
from tests.fixtures.checkpoints import flat_options, save
from tests.fixtures.models import make_model
from tests.fixtures.refusals import Refused, refuses

State = dict[str, Any]
#: torch's zip format, and its format before torch 1.6.
FORMATS = pytest.mark.parametrize("zipped", [True, False])
#: Every command that reads a checkpoint; the test replaces IN, OUT and DATA.
COMMANDS = {
    "inspect": ["inspect", "IN"],
    "fold": ["fold", "IN", "OUT"],
    "convert": ["convert", "--to", "mqa", "IN", "OUT"],
    "to-ctranslate2": ["to-ctranslate2", "IN", "--data", "DATA", "--out", "OUT"],
    "average": ["average", "IN", "--output", "OUT"],
}


class Malicious:
    def __init__(self, proof: Path) -> None:
        self.proof = proof

    def __reduce__(self) -> tuple[object, ...]:
        return Path.touch, (self.proof,)


def saved(path: Path, change: Callable[[State], object], zipped: bool = True) -> Path:
    weights = make_model(attention="mha").state_dict()
    state = {"cfg": {"model": flat_options(attention="mha")}, "model": weights}
    change(state)
    torch.save(state, path, _use_new_zipfile_serialization=zipped)
    return path


@FORMATS
def test_a_checkpoint_with_options_in_a_namespace_is_read(tmp_path: Path, zipped: bool) -> None:
    options = {"arch": "transformer_mhe_tiny", "attention": "mha"}
    new: State = {"cfg": {"model": argparse.Namespace(**options)}}
    new["optimizer_history"] = [{"num_updates": 7}]
    state = read_checkpoint(saved(tmp_path / "a.pt", lambda state: state.update(new), zipped))
    assert model_options(state) == options
    assert updates_made(state) == 7
    for name, weight in make_model(attention="mha").state_dict().items():
        assert torch.equal(state["model"][name], weight)


@pytest.fixture
def refuse(tmp_path: Path, data: Path, refused: Refused) -> Refused:
    """Run a command, check that it fails in one line and leaves nothing, and return the line."""

    def refuse(command: str, path: Path) -> str:
        before = set(tmp_path.iterdir())
        places = {"IN": str(path), "OUT": str(tmp_path / "out"), "DATA": str(data)}
        error = refused(*(places.get(word, word) for word in COMMANDS[command]))
        assert str(path) in error
        assert set(tmp_path.iterdir()) == before
        return error

    return refuse


@FORMATS
@pytest.mark.parametrize("command", COMMANDS)
def test_a_malicious_pickle_is_not_run(
    command: str, zipped: bool, refuse: Refused, tmp_path: Path
) -> None:
    proof = tmp_path / "it-ran"
    attack = {"extra_state": Malicious(proof)}
    path = saved(tmp_path / "bad.pt", lambda state: state.update(attack), zipped)
    assert "foreign code" in refuse(command, path)
    with refuses(path, "pickled objects"):
        checkpoint_utils.load_checkpoint_to_cpu(str(path))
    assert not proof.exists()
    torch.load(path, weights_only=False)
    assert proof.exists(), "the checkpoint is harmless, so this test proves nothing"


def with_options(**options: Any) -> Callable[[State], None]:
    return lambda state: state["cfg"]["model"].update(options)


def without_attention(state: State) -> None:
    state["model"] = {name: w for name, w in state["model"].items() if "self_attn" not in name}


#: How a checkpoint is changed so that it is none of our models.
FOREIGN: dict[str, Callable[[State], object]] = {
    "options as text": lambda state: state.update(cfg="transformer"),
    "no weights": lambda state: state.pop("model"),
    "8 bits": lambda state: state["model"].update(w=torch.ones(2).char()),
    "no options": lambda state: state.pop("cfg"),
    "lstm": with_options(_name="lstm"),
    "half of its weights": without_attention,
    "other sizes": with_options(encoder_attention="mqa"),
    "an unknown kind": with_options(attention="mlp"),
    "heads as text": with_options(encoder_attention_heads="four"),
    "very many positions": with_options(max_source_positions=10**13),
}


@pytest.mark.parametrize("what", FOREIGN)
def test_a_foreign_checkpoint_is_rejected(what: str, refuse: Refused, tmp_path: Path) -> None:
    """``fold`` stands for all commands that build a model; fairseq's own loader rejects it, too."""
    path = saved(tmp_path / "foreign.pt", FOREIGN[what])
    refuse("fold", path)
    with refuses(path):
        checkpoint_utils.load_model_ensemble([str(path)], task=make_task(44))


#: Offsets in a file; negative ones count from its end, where zip files and torch's older format
#: list their parts.
OFFSETS = st.integers(0, 4000) | st.integers(-4000, -1) | st.integers(0, 2**31)


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> dict[bool, bytes]:
    """One checkpoint in both of torch's formats."""
    path, sizes = tmp_path_factory.mktemp("whole") / "a.pt", {"encoder_layers": 1}
    save(path, make_model(attention="mqa", **sizes), attention="mqa", **sizes)
    older = io.BytesIO()
    torch.save(torch.load(path), older, _use_new_zipfile_serialization=False)
    return {True: path.read_bytes(), False: older.getvalue()}


def refusals(path: Path, content: bytes) -> int:
    """Return how many loaders refuse the content: ours, and fairseq's. Each names the file."""
    path.write_bytes(content)
    lines = []
    for load in (read_checkpoint, checkpoint_utils.load_checkpoint_to_cpu):
        try:
            load(path)
        except UserError as error:
            lines.append(str(error))
    assert all(str(path) in line and "Invalid argument" not in line for line in lines)
    return len(lines)


@FORMATS
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=40)
@given(offset=OFFSETS, wrong=st.binary(min_size=1, max_size=12))
@example(0, b"\xff")
@example(17, b"\xff")
@example(20000, b"\xff")
@example(-4, b"\xff\xff\xff")
@example(-1, b"\xff")
def test_a_cut_or_changed_file_never_loads_as_other_weights(
    tmp_path: Path, whole: dict[bool, bytes], zipped: bool, offset: int, wrong: bytes
) -> None:
    content, path = whole[zipped], tmp_path / "damaged.pt"
    start = offset % len(content)
    assert refusals(path, content[:start]) == 2
    changed = content[:start] + wrong + content[start + len(wrong) :]
    if not refusals(path, changed) and zipped:  # the older format has no checksums
        weights = torch.load(io.BytesIO(content))["model"]
        assert all(torch.equal(w, weights[n]) for n, w in read_checkpoint(path)["model"].items())


@pytest.mark.parametrize("content", [b"\x80\x04N.", b"PK\x05\x06" + bytes(18), b"text", b"\0" * 64])
def test_a_file_of_other_bytes_is_rejected(tmp_path: Path, content: bytes) -> None:
    assert refusals(tmp_path / "other.pt", content) == 2


def test_a_full_disk_is_one_line(tmp_path: Path) -> None:
    """A limit on file sizes interrupts torch's writer where a full disk would."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    ignored = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, before[1]))
    try:
        with refuses("a.pt: File too large"), atomic_path(tmp_path / "a.pt") as path:
            save_checkpoint({"model": {"w": torch.ones(300, 300)}}, path)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
        signal.signal(signal.SIGXFSZ, ignored)
    assert not list(tmp_path.iterdir())
