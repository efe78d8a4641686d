"""The order of the rooms: imports of the package point downwards, and none hides in a function."""

import ast
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
HEIGHT = {room: height for height, rooms in enumerate(FLOORS) for room in rooms}
#: Modules that import an optional package at their top; other modules import them late.
LATE = {
    "fairseq_mhe.checkpoints.checkpoint",  # fairseq
    "fairseq_mhe.convert.shared_heads",  # ctranslate2
    "fairseq_mhe.deploy.tokenizer_json",  # tokenizers
    "fairseq_mhe.deploy.trained",  # fairseq
    "fairseq_mhe.models.build",  # fairseq
}
MODULES = [path for path in PACKAGE.rglob("*.py") if path != PACKAGE / "__init__.py"]


def imported(node: ast.AST) -> list[str]:
    """The modules of the package that one statement imports."""
    names = []
    if isinstance(node, ast.Import):
        names = [alias.name for alias in node.names]
    elif isinstance(node, ast.ImportFrom):
        assert not node.level, "imports name the whole way"
        names = [node.module or ""]
        if node.module == "fairseq_mhe":
            names = [f"fairseq_mhe.{alias.name}" for alias in node.names]
    return [name for name in names if name.startswith("fairseq_mhe.")]


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_imports_point_downwards_and_none_hides_in_a_function(path: Path) -> None:
    mine = path.relative_to(PACKAGE).parts[0].removesuffix(".py")
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        for name in imported(node):
            room = name.split(".")[1]
            assert room == mine or HEIGHT[room] < HEIGHT[mine], name
            assert node.col_offset == 0 or name in LATE, name
