"""The options that fairseq gives to Python's eval, a checkpoint's among them, as plain values."""

import ast
import operator
import sys
from collections.abc import Callable, Mapping
from typing import Any

_MOST = 10_000  # parts of a value: a repetition shall not fill the memory
_OPERATIONS: Mapping[type[ast.operator], Callable[[Any, Any], Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
}


def read_plain_options(refusal: Callable[[str], BaseException]) -> None:
    """Give fairseq's modules an ``eval`` that runs no code: `literal`, or else the ``refusal``."""

    def evaluate(text: str) -> Any:
        try:
            return literal(text)
        except ValueError:
            told = "is no number, list or other plain value, and is not run as code"
            raise refusal(f"{text!r:.60} {told}") from None

    for name, module in list(sys.modules.items()):
        if name.startswith("fairseq."):
            vars(module)["eval"] = evaluate


def literal(text: str) -> Any:
    """Numbers, text, True, False, None, lists, tuples and the like of them, sums and repetitions:
    of ``[(512, 3)] * 2 + [(1024, 3)]`` three pairs.

    Raises:
        ValueError: it is none of these, or has more than 10,000 parts.
    """
    try:
        return _value(ast.parse(text.strip(), mode="eval").body)
    except (SyntaxError, TypeError, ArithmeticError, RecursionError, MemoryError) as error:
        raise ValueError(str(error)) from None


def _value(node: ast.expr) -> Any:
    if isinstance(node, (ast.Tuple, ast.List)):
        parts = [_value(part) for part in node.elts]
        return tuple(parts) if isinstance(node, ast.Tuple) else parts
    if isinstance(node, ast.BinOp) and type(node.op) in _OPERATIONS:
        left, right = _value(node.left), _value(node.right)
        for many, times in ((left, right), (right, left)):
            several = isinstance(many, (str, bytes, list, tuple)) and isinstance(times, int)
            if several and len(many) * times > _MOST:
                raise ValueError(f"it has more than {_MOST:,} parts")
        return _OPERATIONS[type(node.op)](left, right)
    return ast.literal_eval(node)
