"""A bundle's description is read, or refused in one line."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from fairseq_mhe.common.errors import UserError
from fairseq_mhe.deploy.bundle import CONFIG, VERSION, open_bundle

CONTENT: dict[str, Any] = {
    "bundle": VERSION,
    "format": "fairseq",
    "text": {"source_lang": "en", "target_lang": "de", "tokenizer": "moses", "subword": "bpe"},
    "decoding": {"beam": 5, "lenpen": 1.0, "max_len_a": 1.5, "max_len_b": 20, "max_tokens": 100},
    "positions": [64, 32],
    "facts": {},
}


def bundle(folder: Path, **changes: Any) -> Path:
    """A bundle without a model; None takes a key away."""
    content = {key: value for key, value in {**CONTENT, **changes}.items() if value is not None}
    (folder / "bpe.codes").write_text("#version: 0.2\nb c</w>\n")
    (folder / CONFIG).write_text(json.dumps(content))
    return folder


def test_what_was_written_is_read(tmp_path: Path) -> None:
    found = open_bundle(bundle(tmp_path))
    assert (found.format, found.text.languages, found.positions) == (
        "fairseq",
        ("en", "de"),
        (64, 32),
    )
    assert found.decoding.beam == 5
    assert found.text.segment(["a  bc.", " "]) == ["a bc .", ""]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        *(({key: None}, rf"bundle\.json is damaged \(KeyError\('{key}'") for key in CONTENT),
        ({"decoding": {"beam": 5}}, r"damaged \(TypeError\(.*lenpen.*get the bundle again"),
        ({"positions": [64]}, r"damaged \(ValueError"),
        ({"bundle": VERSION + 1}, "a bundle of another version of fairseq-mhe: export the model"),
    ],
)
def test_a_damaged_description_is_refused(
    tmp_path: Path, changes: dict[str, Any], message: str
) -> None:
    with pytest.raises(UserError, match=message):
        open_bundle(bundle(tmp_path, **changes))


def test_a_folder_without_a_description_is_no_bundle(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"is no bundle: it has no bundle\.json"):
        open_bundle(tmp_path)


def test_damaged_weights_are_refused_in_one_line(exported: Path, tmp_path: Path) -> None:
    from fairseq_mhe.deploy.translator import Translator

    damaged = Path(shutil.copytree(exported, tmp_path / "damaged"))
    whole = (damaged / "model.safetensors").read_bytes()
    (damaged / "model.safetensors").write_bytes(whole[: len(whole) // 2])
    with pytest.raises(UserError, match=r"damaged cannot be read .*get the bundle again"):
        Translator.load(damaged)
