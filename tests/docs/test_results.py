"""The kept runs hold no text of a corpus; README.md has a section for each folder."""

import re
import tarfile
from pathlib import Path

import pytest

RESULTS = Path(__file__).parents[2] / "results"
ARCHIVES = sorted(RESULTS.glob("*/runs.tar.xz"))
#: Files with the text of a corpus, which is not ours to pass on.
TEXTS = {"sources.txt", "references.txt", "references.tokens.txt"}


@pytest.mark.parametrize("archive", ARCHIVES, ids=lambda path: path.parent.name)
def test_kept_runs_hold_no_text_of_a_corpus(archive: Path) -> None:
    with tarfile.open(archive) as runs:
        names = {Path(name).name for name in runs.getnames()}
    assert "config.json" in names
    assert not names & TEXTS, "pack the output of fairseq-mhe keep, before a table is made of it"
    assert not any(name.endswith((".pt", ".lock")) for name in names)


def test_the_readme_has_a_section_for_each_folder() -> None:
    page = (RESULTS / "README.md").read_text(encoding="utf-8")
    sections = set(re.findall(r"^### `([\w-]+)`$", page, flags=re.M))
    assert sections == {path.name for path in RESULTS.iterdir() if path.is_dir()}
