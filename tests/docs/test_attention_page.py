"""docs/attention.md has the formulas, counts and options of the code; the kind that
docs/add_a_kind.md writes passes the tests of every kind.
"""

import argparse
import json
import re
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from fairseq import utils
from torch import Tensor

from fairseq_mhe import cli
from fairseq_mhe.attention import KINDS, build_attention, equations
from fairseq_mhe.models.build import build_on_meta
from fairseq_mhe.models.counting import attention_parameters
from fairseq_mhe.models.options import kind_options
from tests.attention.conftest import form, place  # noqa: F401
from tests.attention.test_kinds import (  # noqa: F401
    test_dropout_of_attention_weights_is_the_papers,
    test_equals_the_plain_equation,
    test_gradients_equal_the_plain_equations,
)
from tests.fixtures.checkpoints import save
from tests.fixtures.models import make_model
from tests.fixtures.refusals import Refused

DOCS = Path(__file__).parents[2] / "docs"
PAGE, TUTORIAL = ((DOCS / name).read_text() for name in ("attention.md", "add_a_kind.md"))
PLAIN, EXAMPLE, EQUATION = re.findall(
    r"^```python\n(.*?)^```", PAGE + TUTORIAL, re.DOTALL | re.MULTILINE
)
NEW = "qk_shared"
#: Kind -> the cells of its row: formulas of parameters and cached numbers, count in BERT-base.
ROWS = {
    kind.strip("` "): tuple(cell.strip() for cell in cells)
    for kind, *cells in re.findall(r"\|([^|\n]*)" * 4 + r"\|(?:\n|`)", PAGE + TUTORIAL)
    if kind.strip("` ") in (*KINDS, NEW)
}


def evaluate(formula: str, **sizes: int) -> int:
    """Evaluate a formula of the page, such as 2·C·n·d + n·D, for the sizes that letters name."""
    assert re.fullmatch(r"[CndgrDabcR0-9·+() ]+", formula)
    product = formula.replace("·", "*")
    return eval(product, {"__builtins__": {}}, sizes)  # noqa: S307 - checked above


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("width", "heads"), [(24, 4), (48, 8)])
def test_formulas_equal_the_counts_of_a_built_layer(kind: str, width: int, heads: int) -> None:
    choices = {"gqa": {"kv_heads": 4}, "skv": {"kv_heads": 2}, "mla": {"latent_dim": 7}}
    choices["collaborative"] = {"collaborative_dim": 10}
    ranks = {"tucker_head_rank": 3, "tucker_query_rank": 9, "tucker_key_rank": 11}
    choices |= {"tucker": ranks, "tpa": {"tpa_rank": 2}, "mfa": {"query_rank": 7}}
    layer = build_attention(kind, width, heads, **choices.get(kind, {}))
    parameters, cached, _ = ROWS[kind]
    sizes = {"C": width, "n": heads, "d": width // heads, "r": 7, "D": 10}
    sizes |= {"g": layer.kv_heads, "a": 3, "b": 9, "c": 11, "R": 2}
    assert evaluate(parameters, **sizes) == attention_parameters(layer)
    assert evaluate(cached, **sizes) == layer.cached_values


@pytest.mark.parametrize("kind", KINDS)
def test_the_column_of_bert_base_equals_the_model(kind: str) -> None:
    assert int(ROWS[kind][2].replace(",", "")) == attention_parameters(
        build_on_meta("roberta_mhe_base", kind)
    )


def test_the_plain_pytorch_example_decodes_step_by_step_as_all_at_once() -> None:
    names: dict[str, Any] = {}
    torch.manual_seed(1)
    exec(PLAIN, names)  # noqa: S102 - our own page
    assert (names["out"].shape, names["weights"].shape) == ((20, 4, 512), (4, 20, 20))
    whole, _ = names["attention"](names["x"], attn_mask=names["future"])
    torch.testing.assert_close(torch.cat(names["steps"]), whole, rtol=0, atol=1e-5)


def test_the_table_of_options_names_the_kinds_of_each() -> None:
    table = dict(re.findall(r"^\| `--(\S+)` \| ([^|]*) \|", PAGE, re.MULTILINE))
    for name, (_, users) in kind_options().items():
        whose = "all" if len(users) == len(KINDS) else ", ".join(f"`{user}`" for user in users)
        assert table.pop(name.replace("_", "-")) == whose
    assert not table


# The example of a new kind.


@pytest.fixture
def registered(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Import the page's example with fairseq as a user-dir; unregister it afterwards."""
    user_dir = tmp_path / "my_attention"
    user_dir.mkdir()
    (user_dir / "__init__.py").write_text(EXAMPLE, encoding="utf-8")
    monkeypatch.setattr(sys, "path", list(sys.path))
    try:
        utils.import_user_module(argparse.Namespace(user_dir=str(user_dir)))
        names = {**vars(equations), "Tensor": Tensor}
        exec(textwrap.dedent(EQUATION), names)  # noqa: S102 - our own page
        KINDS[NEW].equation = names["equation"]
        yield user_dir
    finally:
        KINDS.pop(NEW, None)
        sys.modules.pop("my_attention", None)
        utils.import_user_module.memo.discard(str(user_dir))


@pytest.fixture
def kind(registered: Path) -> str:
    """Return the kind for the imported tests of every kind."""
    return NEW


def test_the_example_has_the_parameters_of_its_row_and_docstring(registered: Path) -> None:
    test_formulas_equal_the_counts_of_a_built_layer(NEW, 24, 4)
    test_the_column_of_bert_base_equals_the_model(NEW)
    assert f"Parameters: {ROWS[NEW][0].replace('·', ' ')}." in EXAMPLE
    with pytest.raises(ValueError, match="embed_dim 24 and kdim 10 must be equal"):
        build_attention(NEW, 24, 4, kdim=10, vdim=10)


def test_our_commands_know_the_example(
    registered: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], refused: Refused
) -> None:
    path = save(tmp_path / "example.pt", make_model(attention=NEW), attention=NEW)
    assert cli.main(["inspect", str(path), "--json"]) == 0
    assert set(json.loads(capsys.readouterr().out)["kinds"].values()) == {NEW}
    for command in (["fold"], ["convert", "--to", "mqa"]):
        assert "its keys are normalised" in refused(*command, path, tmp_path / "out")
