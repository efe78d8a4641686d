"""The user-dir for fairseq (models, an optimizer, losses, fixes to fairseq), and `Translator`."""

import importlib.util
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fairseq_mhe.common.errors import UserError
from fairseq_mhe.common.quiet import quiet_import

if TYPE_CHECKING:
    from fairseq_mhe.deploy.translator import Translator as Translator


def register() -> None:
    """Register our parts with fairseq and fix its bugs; raises UserError without fairseq."""
    if importlib.util.find_spec("fairseq") is None:
        raise UserError(
            "fairseq is not installed: pip install 've-fairseq>=0.12.3', or your own"
        )
    with quiet_import():
        # Importing a module registers the classes that it defines.
        from fairseq_mhe import fairseq_fixes, safe_loading  # noqa: F401
        from fairseq_mhe.models import families, loss, optimizer, understanding  # noqa: F401

    fairseq_fixes.apply()


def _is_our_command() -> bool:
    """Return whether this process runs our own command, which calls `register` when needed."""
    program = sys.argv[0]
    if program not in sys.orig_argv:  # multiprocessing started this process and set argv
        return False
    ours = ("fairseq_mhe.cli", "fairseq_mhe.prepare.")
    is_module = program == "-m" and any(word.startswith(ours) for word in sys.orig_argv)
    return is_module or Path(program).name == "fairseq-mhe"


def __getattr__(name: str) -> Any:
    """Import ``Translator`` when a program first uses it: training never does."""
    if name != "Translator":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    with quiet_import():
        from fairseq_mhe.deploy.translator import Translator
    return Translator


# Importing fairseq and torch takes seconds; our --help and CTranslate2 need neither of them.
if not _is_our_command() and importlib.util.find_spec("fairseq") is not None:
    register()
