"""Links of the pages: what they point to is there."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGES = sorted(
    path
    for place in (".", "docs", "results", "data-prep", "scripts")
    for path in (ROOT / place).glob("*.md")
)
LINK = re.compile(r"\]\((?!\w+:)([^)\s#]*)#?([^)\s]*)\)")


def prose(page: Path) -> str:
    """Without blocks of code."""
    return re.sub(r"^```.*?^```$", "", page.read_text(encoding="utf-8"), flags=re.M | re.S)


def anchors(page: Path) -> set[str]:
    """Of its headings, as GitHub names them (the first of equal ones)."""
    headings = re.findall(r"^#+ (.*)$", prose(page), flags=re.M)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_somewhere(page: Path) -> None:
    for file, anchor in LINK.findall(prose(page)):
        target = page.parent / file if file else page
        assert target.exists(), f"{page.name} links to {file}, which is not there"
        if anchor:
            assert anchor in anchors(target), f"{page.name}: {file} has no heading #{anchor}"


def test_scripts_of_the_commands_are_there() -> None:
    pages = [ROOT / "README.md", *(ROOT / "docs").glob("*.md")]
    for page in pages:
        text = page.read_text(encoding="utf-8")
        for script in re.findall(r"\b(?:bash|python) ((?:scripts|data-prep)/[^\s`]+)", text):
            assert (ROOT / script).is_file(), f"{page.name}: {script} is not there"
