"""The order of the rooms: imports of the package point downwards, and none hides in a function."""

import ast
import functools
from collections.abc import Iterator
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parents[1] / "fairseq_mhe"
MODULES = sorted(PACKAGE.rglob("*.py"))
#: Each floor may import those before it; rooms on one floor do not import each other.
FLOORS = (
    ("common",),
    ("fairseq_fixes",),
    ("attention",),
    ("models", "prepare"),
    ("checkpoints",),
    ("runs", "convert"),
    ("report",),
    ("experiments", "bench", "deploy"),
    ("cli",),
)
#: Modules that need an optional package at their top, so that who needs them imports them late.
OPTIONAL = {
    "fairseq_mhe.convert.shared_heads": "ctranslate2",
    "fairseq_mhe.deploy.fairseq_engine": "fairseq",
    "fairseq_mhe.deploy.trained": "fairseq",
}
HEIGHT = {room: height for height, rooms in enumerate(FLOORS) for room in rooms}


def room_of(module: Path) -> str:
    """The room that a module is in; a module at the top is a room of its own."""
    return module.relative_to(PACKAGE).parts[0].removesuffix(".py")


def imported(node: ast.AST) -> Iterator[str]:
    """The rooms that one statement imports."""
    names: list[str] = []
    if isinstance(node, ast.Import):
        names = [alias.name for alias in node.names]
    elif isinstance(node, ast.ImportFrom) and node.module == "fairseq_mhe":
        names = [f"fairseq_mhe.{alias.name}" for alias in node.names]
    elif isinstance(node, ast.ImportFrom):
        assert not node.level, "imports name the whole way"
        names = [node.module or ""]
    for name in names:
        parts = name.split(".")
        if parts[0] == "fairseq_mhe" and len(parts) > 1:
            yield parts[1]


@functools.cache
def trees() -> list[tuple[Path, ast.Module]]:
    """Every module of the package, parsed; its own __init__ stands above all rooms."""
    return [
        (module, ast.parse(module.read_text(encoding="utf-8")))
        for module in MODULES
        if module != PACKAGE / "__init__.py"
    ]


def test_every_room_has_its_floor() -> None:
    assert {room_of(module) for module, _ in trees()} == set(HEIGHT)


def test_imports_point_downwards() -> None:
    wrong = []
    for module, tree in trees():
        mine = room_of(module)
        for node in ast.walk(tree):
            for room in imported(node):
                if room != mine and HEIGHT[room] >= HEIGHT[mine]:
                    wrong.append(f"{module.relative_to(PACKAGE)}:{node.lineno} imports {room}")
    assert not wrong


def test_no_import_of_ours_is_hidden_in_a_function() -> None:
    hidden = []
    for module, tree in trees():
        for function in ast.walk(tree):
            if not isinstance(function, (ast.FunctionDef, ast.AsyncFunctionDef)):
                continue
            for node in ast.walk(function):
                if isinstance(node, ast.ImportFrom) and node.module in OPTIONAL:
                    continue
                for room in imported(node):
                    hidden.append(f"{module.relative_to(PACKAGE)}:{node.lineno} imports {room}")
    assert not hidden


@pytest.mark.parametrize(("module", "package"), OPTIONAL.items())
def test_what_is_imported_late_needs_an_optional_package(module: str, package: str) -> None:
    path = PACKAGE.parent / f"{module.replace('.', '/')}.py"
    top = ast.parse(path.read_text(encoding="utf-8")).body
    needed = [node.module or "" for node in top if isinstance(node, ast.ImportFrom)]
    assert any(name == package or name.startswith(f"{package}.") for name in needed)


def test_programs_beside_the_package_are_not_imported_by_it() -> None:
    programs = {path.parent.name for path in (PACKAGE.parent / "scripts").glob("*/__init__.py")}
    assert programs
    for module, tree in trees():
        for node in ast.walk(tree):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            if isinstance(node, ast.ImportFrom):
                names.append(node.module or "")
            assert not programs & {name.split(".")[0] for name in names}, module
