"""A bundle that cannot translate is refused in one line: by its description or its weights."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from fairseq_mhe.common.errors import UserError
from fairseq_mhe.deploy.bundle import CONFIG
from fairseq_mhe.deploy.translator import Translator


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        *(
            ({key: None}, rf"bundle\.json is damaged \(KeyError\('{key}'")
            for key in ("format", "text", "decoding", "positions")
        ),
        ({"decoding": {"beams": 5}}, r"damaged \(TypeError\(.*beams.*get the bundle again"),
        ({"positions": [64]}, r"damaged \(ValueError"),
        ({"format": "huggingface"}, "bundle for huggingface, which --engine auto does not read"),
    ],
)
def test_a_description_that_does_not_suit_is_refused(
    exported: Path, tmp_path: Path, changes: dict[str, Any], message: str
) -> None:
    bundle = Path(shutil.copytree(exported, tmp_path / "my bundle"))
    config = {**json.loads((bundle / CONFIG).read_text()), **changes}
    present = {key: value for key, value in config.items() if value is not None}
    (bundle / CONFIG).write_text(json.dumps(present))
    with pytest.raises(UserError, match=message):
        Translator.load(bundle)


def test_damaged_weights_are_refused(exported: Path, tmp_path: Path) -> None:
    bundle = Path(shutil.copytree(exported, tmp_path / "my bundle"))
    weights = bundle / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[: weights.stat().st_size // 2])
    with pytest.raises(UserError, match=r"bundle cannot be read .*get the bundle again"):
        Translator.load(bundle)
