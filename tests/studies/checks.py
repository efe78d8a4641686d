"""What the studies' tests share: the three files of a report agree."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any


def reports(out: Path, name: str) -> dict[str, Any]:
    """Variant -> its summary, after a look at all three files."""
    found = json.loads((out / f"{name}.json").read_text())
    text = (out / f"{name}.md").read_text()
    for fact in ("processor", "torch", "date", "command", "nrefs:1"):
        assert fact in text
    assert found["facts"]["command"].startswith("bash scripts/study.sh ")
    assert (out / f"{name}.png").read_bytes().startswith(b"\x89PNG")
    return {summary["variant"]: summary for summary in found["variants"]}
