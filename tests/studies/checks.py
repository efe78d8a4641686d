"""What the studies' tests share: a study is run twice, and its three files agree."""

from __future__ import annotations

import json
from pathlib import Path

from studies.__main__ import main


def changed(folder: Path) -> dict[str, int]:
    """When each file was written last."""
    return {
        str(p): p.stat().st_mtime_ns
        for p in folder.rglob("*")
        if p.suffix in (".pt", ".txt") and p.is_file()
    }


def twice(command: list[str], out: Path) -> None:
    """Run a study, and again, which makes nothing anew."""
    assert main([*command, "--out", str(out), "--cpu"]) == 0
    before = changed(out)
    assert main([*command, "--out", str(out), "--cpu"]) == 0
    assert changed(out) == before


def reports(out: Path, name: str) -> dict:
    """The JSON, after a look at the other two files."""
    found = json.loads((out / f"{name}.json").read_text())
    text = (out / f"{name}.md").read_text()
    for fact in ("processor", "torch", "date", "command", "nrefs:1"):
        assert fact in text
    assert found["command"].startswith("bash scripts/study.sh ")
    assert (out / f"{name}.png").read_bytes().startswith(b"\x89PNG")
    return found
