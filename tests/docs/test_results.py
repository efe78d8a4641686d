"""results/README.md names every folder of tables; the kept runs hold no text of a corpus."""

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


def test_the_readme_says_question_answer_command_machine_and_commit_of_each_folder() -> None:
    page = (RESULTS / "README.md").read_text(encoding="utf-8")
    sections = dict(re.findall(r"^### `([\w-]+)`\n(.*?)(?=^##|\Z)", page, flags=re.M | re.S))
    assert sections.keys() == {path.name for path in RESULTS.iterdir() if path.is_dir()}
    for folder, text in sections.items():
        for part in (r"\*\*[^*]+\?\*\* \S", r"\n- Command: ", r"\n- Machine, date", "ommit:? "):
            assert re.search(part, text), (folder, part)
        assert {".md", ".json"} <= {path.suffix for path in (RESULTS / folder).iterdir()}, folder
