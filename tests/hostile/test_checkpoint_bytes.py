"""A truncated or changed checkpoint of either format loads right or is rejected in one line."""

import io
from pathlib import Path

import pytest
import torch
from fairseq import checkpoint_utils
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from fairseq_mhe.common.checkpoint_files import read_checkpoint
from fairseq_mhe.common.errors import UserError
from tests.fixtures.checkpoints import save
from tests.fixtures.models import make_model

#: Offsets in a file; negative ones count from its end, where zip files and torch's older format
#: list their parts.
OFFSETS = st.integers(0, 4000) | st.integers(-4000, -1) | st.integers(0, 2**31)
share_fixtures = settings(suppress_health_check=[HealthCheck.function_scoped_fixture])


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    """One checkpoint in both of torch's formats."""
    path = tmp_path_factory.mktemp("whole") / "a.pt"
    sizes = {"encoder_layers": 1, "decoder_layers": 1}
    save(path, make_model(attention="mqa", **sizes), attention="mqa", **sizes)
    older = io.BytesIO()
    torch.save(torch.load(path), older, _use_new_zipfile_serialization=False)
    return {"zip": path.read_bytes(), "older": older.getvalue()}


def refusals(path: Path) -> list[str]:
    """Return the errors of our loader and of fairseq's, after checking that each names the file."""
    lines = []
    for load in (read_checkpoint, checkpoint_utils.load_checkpoint_to_cpu):
        try:
            load(path)
        except UserError as error:
            lines.append(str(error))
    assert all(str(path) in line for line in lines)
    return lines


@pytest.mark.parametrize("kind", ["zip", "older"])
@settings(share_fixtures, max_examples=40)
@given(offset=OFFSETS)
@example(0)
@example(20000)
@example(-1)
def test_a_truncated_file_is_rejected(
    tmp_path: Path, whole: dict[str, bytes], kind: str, offset: int
) -> None:
    path = tmp_path / "truncated.pt"
    path.write_bytes(whole[kind][: offset if offset < 0 else offset % len(whole[kind])])
    assert [": Invalid argument" in line for line in refusals(path)] == [False, False]


@pytest.mark.parametrize("kind", ["zip", "older"])
@settings(share_fixtures, max_examples=60)
@given(changes=st.lists(st.tuples(OFFSETS, st.binary(min_size=1, max_size=12)), min_size=1))
@example([(17, b"\xff")])
@example([(-4, b"\xff\xff\xff")])
def test_changed_bytes_never_load_as_other_weights(
    tmp_path: Path, whole: dict[str, bytes], kind: str, changes: list[tuple[int, bytes]]
) -> None:
    content = bytearray(whole[kind])
    for offset, wrong in changes:
        start = offset % len(content)
        content[start : start + len(wrong)] = wrong
    path = tmp_path / "changed.pt"
    path.write_bytes(content)
    lines = refusals(path)
    if kind == "zip" and not lines:  # the older format has no checksums
        weights = torch.load(io.BytesIO(whole[kind]))["model"]
        assert all(torch.equal(w, weights[n]) for n, w in read_checkpoint(path)["model"].items())


@settings(share_fixtures, max_examples=40)
@given(content=st.binary(max_size=64) | st.text(max_size=200).map(str.encode))
@example(b"\x80\x04N.")
@example(b"PK\x05\x06" + bytes(18))
def test_a_file_of_other_bytes_is_rejected(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "short.pt"
    path.write_bytes(content)
    assert len(refusals(path)) == 2
