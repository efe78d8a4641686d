"""A checkpoint of either format that is cut or has wrong bytes loads, or is refused in one line."""

import io
from pathlib import Path

import pytest
import torch
from fairseq import checkpoint_utils
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from fairseq_mhe.common.checkpoint_files import read_checkpoint
from fairseq_mhe.common.errors import ErrorExit, UserError
from tests.fixtures.checkpoints import save
from tests.fixtures.models import make_model

#: Places among a file's bytes: from its beginning, and (below 0) from its end, where zip files and
#: torch's older format say what is where.
PLACES = st.integers(0, 4000) | st.integers(-4000, -1) | st.integers(0, 2**31)
once_for_all = settings(suppress_health_check=[HealthCheck.function_scoped_fixture])


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
    """What our loader and fairseq's say of a file: nothing, or a line each that names it."""
    lines = []
    for load in (read_checkpoint, checkpoint_utils.load_checkpoint_to_cpu):
        try:
            load(path)
        except (UserError, ErrorExit) as error:
            lines.append(str(error))
    assert all(str(path) in line and "\n" not in line for line in lines)
    return lines


@pytest.mark.parametrize("kind", ["zip", "older"])
@settings(once_for_all, max_examples=40)
@given(place=PLACES)
@example(0)
@example(-1)
def test_cut(tmp_path: Path, whole: dict[str, bytes], kind: str, place: int) -> None:
    path = tmp_path / "cut.pt"
    path.write_bytes(whole[kind][: place if place < 0 else place % len(whole[kind])])
    assert len(refusals(path)) == 2


@pytest.mark.parametrize("kind", ["zip", "older"])
@settings(once_for_all, max_examples=60)
@given(changes=st.lists(st.tuples(PLACES, st.binary(min_size=1, max_size=12)), min_size=1))
@example([(17, b"\xff")])
@example([(-4, b"\xff\xff\xff")])
def test_flipped(
    tmp_path: Path, whole: dict[str, bytes], kind: str, changes: list[tuple[int, bytes]]
) -> None:
    content = bytearray(whole[kind])
    for place, wrong in changes:
        start = place % len(content)
        content[start : start + len(wrong)] = wrong
    path = tmp_path / "flipped.pt"
    path.write_bytes(content)
    lines = refusals(path)
    if kind == "zip" and not lines:  # the older format has no checksums
        weights = torch.load(io.BytesIO(whole[kind]))["model"]
        assert all(torch.equal(w, weights[n]) for n, w in read_checkpoint(path)["model"].items())


@settings(once_for_all, max_examples=40)
@given(content=st.binary(max_size=64) | st.text(max_size=200).map(str.encode))
@example(b"\x80\x04N.")
@example(b"PK\x05\x06" + bytes(18))
def test_anything(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "short.pt"
    path.write_bytes(content)
    assert len(refusals(path)) == 2
