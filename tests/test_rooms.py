"""The order of the rooms: imports of the package point downwards, and none hides in a function."""

import ast
import functools
from collections.abc import Iterator
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parents[1] / "fairseq_mhe"
#: Each floor may import those before it; rooms on one floor do not import each other.
FLOORS = (
    ("common",),
    ("safe_loading",),
    ("attention",),
    ("models", "prepare"),
    ("fairseq_fixes",),
    ("checkpoints",),
    ("runs", "convert"),
    ("report",),
    ("deploy",),
    ("experiments", "bench"),
    ("cli",),
)
#: Modules that import an optional package at their top; other modules import them late.
OPTIONAL = {
    "fairseq_mhe.checkpoints.checkpoint": "fairseq",
    "fairseq_mhe.convert.shared_heads": "ctranslate2",
    "fairseq_mhe.deploy.trained": "fairseq",
    "fairseq_mhe.models.build": "fairseq",
}
HEIGHT = {room: height for height, rooms in enumerate(FLOORS) for room in rooms}


def imported(node: ast.AST) -> Iterator[str]:
    """The modules that one statement imports."""
    if isinstance(node, ast.Import):
        yield from (alias.name for alias in node.names)
    elif isinstance(node, ast.ImportFrom) and node.module == "fairseq_mhe":
        yield from (f"fairseq_mhe.{alias.name}" for alias in node.names)
    elif isinstance(node, ast.ImportFrom):
        assert not node.level, "imports name the whole way"
        yield node.module or ""


def rooms(node: ast.AST) -> list[str]:
    """The rooms of the modules that a statement imports; a top-level module is its own room."""
    names = [name.split(".") for name in imported(node)]
    return [parts[1] for parts in names if parts[0] == "fairseq_mhe" and len(parts) > 1]


@functools.cache
def nodes() -> list[tuple[Path, ast.AST]]:
    """Every statement of the package with its module; its own __init__ stands above all rooms."""
    modules = [path for path in PACKAGE.rglob("*.py") if path != PACKAGE / "__init__.py"]
    trees = {path.relative_to(PACKAGE): ast.parse(path.read_text("utf-8")) for path in modules}
    return [(module, node) for module, tree in trees.items() for node in ast.walk(tree)]


def test_imports_point_downwards() -> None:
    for module, node in nodes():
        mine = module.parts[0].removesuffix(".py")
        for room in rooms(node):
            assert room == mine or HEIGHT[room] < HEIGHT[mine], f"{module} imports {room}"


def test_no_import_of_ours_is_hidden_in_a_function() -> None:
    for module, function in nodes():
        if isinstance(function, (ast.FunctionDef, ast.AsyncFunctionDef)):
            for node in ast.walk(function):
                late = isinstance(node, ast.ImportFrom) and node.module in OPTIONAL
                assert late or not rooms(node), f"{module}:{function.name}"


@pytest.mark.parametrize(("module", "package"), OPTIONAL.items())
def test_what_is_imported_late_needs_an_optional_package(module: str, package: str) -> None:
    path = PACKAGE.parent / f"{module.replace('.', '/')}.py"
    needed = [name for node in ast.parse(path.read_text("utf-8")).body for name in imported(node)]
    assert package in {name.split(".")[0] for name in needed}
