"""A bundle is read when each file is the one that was written, and refused in one line else."""

from __future__ import annotations

import hashlib
import json
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest

from fairseq_mhe.common.errors import UserError
from fairseq_mhe.deploy.bundle import CHECKSUMS, CONFIG, VERSION, open_bundle, seal

TEXT = {"source_lang": "en", "target_lang": "de", "tokenizer": "moses", "subword": "bpe"}


@pytest.fixture
def bundle(tmp_path: Path) -> Path:
    """A bundle without a model."""
    folder = tmp_path / "a bundle"
    (folder / "part").mkdir(parents=True)
    (folder / "bpe.codes").write_text("#version: 0.2\nb c</w>\n")
    (folder / "part" / "weights").write_bytes(bytes(range(256)))
    decoding = {"beam": 5, "lenpen": 1.0, "max_len_a": 1.5, "max_len_b": 20, "max_tokens": 100}
    facts = {"format": "fairseq", "positions": [64, 32], "facts": {}}
    seal(folder, {"text": TEXT, "decoding": decoding, **facts})
    return folder


def described_anew(bundle: Path, without: str | None = None, **change: Any) -> None:
    """Another bundle.json, with its checksum."""
    config = json.loads((bundle / CONFIG).read_text()) | change
    config.pop(without, None)
    (bundle / CONFIG).write_text(json.dumps(config))
    made = hashlib.sha256((bundle / CONFIG).read_bytes()).hexdigest()
    lines = (bundle / CHECKSUMS).read_text().splitlines(keepends=True)
    lines = [line for line in lines if not line.endswith(f"  {CONFIG}\n")]
    (bundle / CHECKSUMS).write_text("".join([*lines, f"{made}  {CONFIG}\n"]))


def test_what_was_written_is_read(bundle: Path) -> None:
    found = open_bundle(bundle)
    assert (found.format, found.languages, found.positions) == ("fairseq", ("en", "de"), (64, 32))
    assert found.decoding.beam == 5
    assert found.text.segment(["a  bc.", " "]) == ["a bc .", ""]


def test_the_checksums_are_those_of_sha256sum(bundle: Path) -> None:
    checked = ["sha256sum", "--strict", "--check", CHECKSUMS]
    assert subprocess.run(checked, cwd=bundle, check=False, capture_output=True).returncode == 0


def test_a_missing_or_changed_file_is_named(bundle: Path) -> None:
    weights = bundle / "part" / "weights"
    weights.write_bytes(bytes(256))
    with pytest.raises(UserError, match=r"part/weights is not the file that was exported"):
        open_bundle(bundle)
    weights.unlink()
    with pytest.raises(UserError, match=r"part/weights is missing from the bundle"):
        open_bundle(bundle)
    (bundle / CONFIG).unlink()
    with pytest.raises(UserError, match=r"is no bundle: it has no bundle\.json"):
        open_bundle(bundle)


def test_a_newer_layout_is_refused(bundle: Path) -> None:
    config = json.loads((bundle / CONFIG).read_text())
    (bundle / CONFIG).write_text(json.dumps({**config, "bundle": VERSION + 1}))
    with pytest.raises(UserError, match=rf"layout {VERSION + 1}, newer than this fairseq-mhe"):
        open_bundle(bundle)


@pytest.mark.parametrize("key", ["bundle", "format", "text", "decoding", "positions", "facts"])
def test_a_description_without_a_part_is_refused(bundle: Path, key: str) -> None:
    described_anew(bundle, without=key)
    with pytest.raises(UserError, match=rf"bundle\.json is damaged \('{key}'\): get the bundle"):
        open_bundle(bundle)


@pytest.mark.parametrize(
    ("change", "fault"),
    [
        ({"decoding": {"beam": 5}}, "bundle.json is damaged"),
        ({"positions": [64]}, "bundle.json is damaged"),
        ({"text": {**TEXT, "subword": "pieces"}}, "no 'pieces'"),
    ],
)
def test_a_description_of_another_form_is_refused(
    bundle: Path, change: dict[str, Any], fault: str
) -> None:
    described_anew(bundle, **change)
    with pytest.raises(UserError, match=re.escape(fault)):
        _ = open_bundle(bundle).text


@pytest.mark.parametrize("name", ["../outside", "/etc/passwd", ""])
def test_checksums_of_files_elsewhere_are_refused(bundle: Path, name: str) -> None:
    (bundle / CHECKSUMS).write_text(f"{'0' * 64}  {name}\n")
    with pytest.raises(UserError, match="is damaged at"):
        open_bundle(bundle)


def test_the_description_has_a_checksum(bundle: Path) -> None:
    lines = (bundle / CHECKSUMS).read_text().splitlines(keepends=True)
    (bundle / CHECKSUMS).write_text("".join(line for line in lines if CONFIG not in line))
    with pytest.raises(UserError, match=r"no checksum of bundle\.json"):
        open_bundle(bundle)
