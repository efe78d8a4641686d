"""Links of pages lead somewhere, and their numbers are those of the results and of the code."""

import ast
import json
import re
import tomllib
from argparse import Namespace
from operator import attrgetter
from pathlib import Path

import pytest
import torch
from fairseq import checkpoint_utils

from fairseq_mhe.checkpoints.checkpoint import open_source
from fairseq_mhe.experiments.all_kinds import all_counts
from tests.fixtures.small_runs import run_of

ROOT = Path(__file__).parents[2]
FOLDERS = (".", "docs", "results", "data-prep", "scripts")
ALL = sorted(path for folder in FOLDERS for path in (ROOT / folder).glob("*.md"))
DOCS = sorted((ROOT / "docs").glob("*.md"))
README = ROOT / "README.md"


def prose(page: Path) -> str:
    """Return the text of a page without blocks of code."""
    return re.sub(r"^```.*?^```$", "", page.read_text(encoding="utf-8"), flags=re.M | re.S)


def anchors(page: Path) -> set[str]:
    """Return the anchors that GitHub gives a page's headings (of equal headings, the first)."""
    headings = re.findall(r"^#+ (.*)$", prose(page), flags=re.M)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", ALL, ids=attrgetter("name"))
def test_links_lead_to_files_and_headings(page: Path) -> None:
    for file, anchor in re.findall(r"\]\((?!\w+:)([^)\s#]*)#?([^)\s]*)\)", prose(page)):
        target = page.parent / file if file else page
        assert target.exists(), f"{page.name} links to {file}, which is not there"
        assert not anchor or anchor in anchors(target), f"{page.name}: no heading {file}#{anchor}"


def test_readme_has_absolute_links_to_files_of_the_repository() -> None:
    """PyPI shows README.md without the files beside it."""
    text = README.read_text(encoding="utf-8")
    assert not re.findall(r"\]\((?!https://)", text)
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    start = re.escape(project["urls"]["Repository"])
    named = dict(re.findall(r"^\[(.+)\]: (\S+)$", text, re.M))
    for name, url in named.items():
        assert re.fullmatch(rf"{start}/(blob|tree|raw)/main/{re.escape(name)}", url), url
        assert (ROOT / name).exists(), name
        assert f"[{name}]" in text.replace(f"[{name}]: ", ""), f"{name} is not used"
    used = re.findall(r"\[((?:docs|results|data-prep)/[\w./-]+|\w+\.(?:md|cff))\]", text)
    assert {*used} == named.keys()


@pytest.mark.parametrize("page", [README, ROOT / "CONTRIBUTING.md", *DOCS], ids=attrgetter("name"))
def test_files_that_a_page_names_are_there(page: Path) -> None:
    """A word in capitals, as in NAME.py, stands for a name."""
    text = page.read_text(encoding="utf-8")
    rooms = "fairseq_mhe|scripts|data-prep|tests|docs"
    for name in re.findall(rf"(?<![\w/])(?:{rooms})/[\w/-]*\.\w+", text):
        assert (ROOT / name).is_file() or re.search(r"\b[A-Z]+\.", name), name


@pytest.mark.parametrize("name", ["quickstart", "multi30k"])
def test_the_tables_of_the_readme_have_the_numbers_of_their_results(name: str) -> None:
    rows = README.read_text(encoding="utf-8").splitlines()
    for result in json.loads((ROOT / "results" / name / "table.json").read_text("utf-8")):
        counts = "attention_parameters", "total_parameters", "kv_bytes_per_token"
        cells = [f"`{result['attention']}`", *(f"{result[count]:,}" for count in counts)]
        cells.append(f"{result['bleu']:.2f}")
        if name == "multi30k":
            cells.append(f"{result['valid_loss']:.3f}")
        prr = f"{result['prr']:.1f}"
        if result["prr_low"] is not None:
            prr += f" ({result['prr_low']:.1f} to {result['prr_high']:.1f})"
        assert f"| {' | '.join([*cells, prr])} |" in rows


def test_the_kinds_of_the_readme_have_the_costs_of_size_base() -> None:
    text = README.read_text(encoding="utf-8")
    costs = {
        line["attention"]: f"{line['parameters']:,} | {line['cache']:,} |"
        for line in all_counts()
        if line["row"] == "base"
    }
    for kind, cost in costs.items():
        assert re.search(rf"^\| `{kind}` \| .* \| {re.escape(cost)}$", text, re.M), (kind, cost)


def test_a_trained_model_obeys_the_documented_overrides(tmp_path: Path) -> None:
    (row,) = re.findall(r"^.*--model-overrides.*$", (ROOT / "docs/commands.md").read_text(), re.M)
    source, path = open_source(Path(run_of("mhe_mul"))), tmp_path / "model.pt"
    state, precisions = source.state, []
    state["cfg"]["model"] = Namespace(**state["cfg"]["model"])  # as fairseq-train has it
    torch.save(state, path)
    for override in map(ast.literal_eval, re.findall(r"{.*?}", row)):
        given = {"arg_overrides": override, "task": source.task()}
        (model,), _ = checkpoint_utils.load_model_ensemble([str(path)], **given)
        precisions.append(model.generation_precision)
    assert precisions == ["bf16", "int8"]
