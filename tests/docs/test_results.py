"""The kept runs hold no text of others' corpora; README.md has a section for each folder."""

import re
import tarfile
from pathlib import Path

import pytest

from fairseq_mhe.prepare.corpora.home_assistant import read_rows

RESULTS = Path(__file__).parents[2] / "results"
ARCHIVES = sorted(RESULTS.glob("*/*runs.tar.xz"))
#: Files with the text of a corpus, which is ours to pass on if the corpus is the embedded one.
TEXTS = {"sources.txt", "references.txt", "references.tokens.txt"}


@pytest.mark.parametrize("archive", ARCHIVES, ids=lambda path: f"{path.parent.name}-{path.stem}")
def test_kept_runs_hold_no_text_but_the_embedded_corpus(archive: Path) -> None:
    embedded = {text for _, _, *pair in read_rows() for text in pair}
    names = set()
    with tarfile.open(archive) as runs:
        for member in runs:
            name = Path(member.name).name
            names.add(name)
            if name in TEXTS:
                lines = runs.extractfile(member).read().decode().splitlines()
                assert set(lines) <= embedded, member.name
    assert "config.json" in names
    assert not any(name.endswith((".pt", ".lock")) for name in names)


def test_the_readme_has_a_section_for_each_folder() -> None:
    page = (RESULTS / "README.md").read_text(encoding="utf-8")
    sections = set(re.findall(r"^### `([\w-]+)`$", page, flags=re.M))
    assert sections == {path.name for path in RESULTS.iterdir() if path.is_dir()}
