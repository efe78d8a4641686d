"""The fairseq user-dir: models, an optimizer, a loss, and fixes to fairseq; `Translator`."""

import importlib.util
from typing import TYPE_CHECKING, Any

from fairseq_mhe import fairseq_fixes

# Where there is no fairseq, cli.py says so: an error here would be a traceback.
if importlib.util.find_spec("fairseq") is not None:
    # What is imported registers itself.
    with fairseq_fixes.quiet_import():
        from fairseq_mhe.models import (  # noqa: F401
            answers,
            architectures,
            language_architectures,
            loss,
            optimizer,
            words_task,
        )

    fairseq_fixes.apply()

if TYPE_CHECKING:
    from fairseq_mhe.deploy.translator import Translator as Translator


def __getattr__(name: str) -> Any:
    """``Translator``, imported where it is asked for: training has no use for it."""
    if name != "Translator":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    with fairseq_fixes.quiet_import():
        from fairseq_mhe.deploy.translator import Translator
    return Translator
