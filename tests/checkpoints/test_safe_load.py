"""Checkpoints are read without running what they hold, and refused in one clear line."""

import argparse
import resource
import signal
from pathlib import Path

import pytest
import torch

from fairseq_mhe.checkpoints.safe_load import save_checkpoint, updates_made
from fairseq_mhe.common.checkpoint_files import model_options, read_checkpoint
from fairseq_mhe.common.errors import UserError


class Malicious:
    """Unpickled in the ordinary way, it makes a file."""

    def __init__(self, proof: Path) -> None:
        self.proof = proof

    def __reduce__(self) -> tuple[object, ...]:
        return Path.touch, (self.proof,)


@pytest.mark.parametrize("new_format", [True, False], ids=["zip", "before torch 1.6"])
def test_a_checkpoint_with_options_in_a_namespace_loads(
    tmp_path: Path, new_format: bool
) -> None:
    options = argparse.Namespace(arch="transformer_mhe_tiny", attention="mha")
    weights = {"w": torch.ones(3, 3)}
    saved = {
        "cfg": {"model": options},
        "model": weights,
        "optimizer_history": [{"num_updates": 7}],
    }
    torch.save(saved, tmp_path / "a.pt", _use_new_zipfile_serialization=new_format)
    state = read_checkpoint(tmp_path / "a.pt")
    assert model_options(state) == {"arch": "transformer_mhe_tiny", "attention": "mha"}
    assert updates_made(state) == 7
    assert torch.equal(state["model"]["w"], weights["w"])


@pytest.mark.parametrize("new_format", [True, False])
def test_foreign_code_is_refused_and_not_run(tmp_path: Path, new_format: bool) -> None:
    proof, path = tmp_path / "it-ran", tmp_path / "bad.pt"
    state = {"model": {}, "extra_state": Malicious(proof)}
    torch.save(state, path, _use_new_zipfile_serialization=new_format)
    with pytest.raises(UserError, match="foreign code") as refused:
        read_checkpoint(path)
    assert str(path) in str(refused.value)
    assert "\n" not in str(refused.value)
    assert not proof.exists()
    torch.load(path, weights_only=False)
    assert proof.exists(), "the checkpoint is harmless, so that this test proves nothing"


@pytest.mark.parametrize(
    "content",
    [[1, 2], {"weights": {}}, {"model": torch.ones(2)}, {"model": {"w": torch.ones(2).char()}}],
)
def test_what_is_no_fairseq_checkpoint_is_refused(tmp_path: Path, content: object) -> None:
    torch.save(content, tmp_path / "a.pt")
    with pytest.raises(UserError, match="no fairseq checkpoint"):
        read_checkpoint(tmp_path / "a.pt")


def test_a_full_disk_is_one_line(tmp_path: Path) -> None:
    """A limit on the file's size ends torch's writing at the same place as a full disk."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    ignored = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, before[1]))
    try:
        with pytest.raises(UserError, match=r"cannot write .*a\.pt: File too large") as refused:
            save_checkpoint({"model": {"w": torch.ones(300, 300)}}, tmp_path / "a.pt")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
        signal.signal(signal.SIGXFSZ, ignored)
    assert "\n" not in str(refused.value)
    assert not list(tmp_path.iterdir())
