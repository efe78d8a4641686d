"""What ``torch.load(weights_only=True)`` may build from a checkpoint beside torch's own classes.

fairseq stores these: options (Namespace), metrics (``--eval-bleu`` keeps counts as NumPy arrays,
the best score as NumPy's number), and, in old versions, paths and other dictionaries. Nothing here
runs code of the file, and no array of Python objects can be built.
"""

import argparse
import builtins
import pathlib
import pickle
from typing import Any

import numpy as np
import torch

#: NumPy 2 moved the functions that its pickles name; either version reads the other's.
_NUMPY_MODULES = ("numpy.core.multiarray", "numpy._core.multiarray")
#: Values that a pickle names by a class of Python's own, such as the factory of a defaultdict.
_BUILTINS = ("bool", "dict", "float", "int", "list", "set", "str", "tuple")


def permit() -> None:
    """Let every ``torch.load`` of this process build these classes."""
    # These functions of NumPy have no public name.
    make_array = np.zeros(0).__reduce__()[0]
    make_number = np.float64().__reduce__()[0]
    permitted: list[Any] = [argparse.Namespace, np.ndarray]
    permitted += [(_dictionary, "collections.defaultdict"), (_number_type, "numpy.dtype")]
    permitted += {
        type(np.dtype(code)) for code in np.typecodes["AllInteger"] + "?efdgFDG"
    }
    for module in ("pathlib", "pathlib._local"):  # the second one is Python 3.13's
        permitted.append((pathlib.PosixPath, f"{module}.PosixPath"))
    for module in _NUMPY_MODULES:
        permitted.append((make_array, f"{module}._reconstruct"))
        permitted.append((make_number, f"{module}.scalar"))
    for name in _BUILTINS:
        builtin = getattr(builtins, name)
        permitted.append((builtin, f"builtins.{name}"))
        permitted.append((builtin, f"__builtin__.{name}"))  # in pickles of protocol 2
    torch.serialization.add_safe_globals(permitted)


def _number_type(code: str, *_: Any) -> np.dtype[Any]:
    """Return a new ``numpy.dtype``, to which the pickle then gives its byte order."""
    dtype = np.dtype(code, False, True)
    if dtype.kind not in "biufc":
        problem = f"GLOBAL numpy.dtype({code!r}) is no type of numbers"
        raise pickle.UnpicklingError(problem)
    return dtype


def _dictionary(*_: Any) -> dict[Any, Any]:
    """Return a plain dictionary: torch fills no other class."""
    return {}
