"""A bundle's description is read, or refused in one line; so are its weights."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from fairseq_mhe.common.errors import UserError
from fairseq_mhe.deploy.bundle import CONFIG, open_bundle
from fairseq_mhe.deploy.translator import Translator

CONTENT: dict[str, Any] = {
    "format": "fairseq",
    "text": {"source_lang": "en", "target_lang": "de", "tokenizer": "moses", "subword": "bpe"},
    "decoding": {
        "beam": 5,
        "lenpen": 1.0,
        "max_len_a": 1.5,
        "max_len_b": 20,
        "max_tokens": 100,
    },
    "positions": [64, 32],
}


def write_bundle(folder: Path, **changes: Any) -> Path:
    """A bundle without a model; None takes a key away."""
    content = {key: value for key, value in {**CONTENT, **changes}.items() if value is not None}
    (folder / "bpe.codes").write_text("#version: 0.2\nb c</w>\n")
    (folder / CONFIG).write_text(json.dumps(content))
    return folder


def test_a_written_description_is_read(tmp_path: Path) -> None:
    bundle = open_bundle(write_bundle(tmp_path))
    assert (bundle.text.languages, bundle.positions) == (("en", "de"), (64, 32))
    assert bundle.decoding.beam == 5
    assert bundle.text.segment(["a  bc.", " "]) == ["a bc .", ""]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        *(({key: None}, rf"bundle\.json is damaged \(KeyError\('{key}'") for key in CONTENT),
        ({"decoding": {"beams": 5}}, r"damaged \(TypeError\(.*beams.*get the bundle again"),
        ({"positions": [64]}, r"damaged \(ValueError"),
    ],
)
def test_a_damaged_description_is_refused(
    tmp_path: Path, changes: dict[str, Any], message: str
) -> None:
    with pytest.raises(UserError, match=message):
        open_bundle(write_bundle(tmp_path, **changes))


def test_damaged_weights_are_refused(exported: Path, tmp_path: Path) -> None:
    bundle = Path(shutil.copytree(exported, tmp_path / "my bundle"))
    weights = bundle / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[: weights.stat().st_size // 2])
    with pytest.raises(UserError, match=r"bundle cannot be read .*get the bundle again"):
        Translator.load(bundle)
