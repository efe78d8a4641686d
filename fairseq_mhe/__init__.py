"""A plugin of fairseq: importing it registers models, criterions and an optimizer, and no more.

fairseq then loads checkpoints without running code in them. `fix_fairseq` also mends its bugs.
"""

import importlib.util
import sys
from typing import TYPE_CHECKING, Any

from fairseq_mhe.common.errors import UserError, show_as_one_line
from fairseq_mhe.common.quiet import quiet_import

if TYPE_CHECKING:
    from fairseq_mhe.deploy.translator import Translator as Translator

#: Versions of fairseq that this package is tested with: ve-fairseq's and fairseq-fixed's.
SUPPORTED_FAIRSEQ = ("0.12.3", "0.12.3.1")


def register() -> None:
    """Register our parts with fairseq; raises UserError if a supported one is not installed."""
    if importlib.util.find_spec("fairseq") is None:
        raise UserError(f"fairseq is not installed: {_how_to_install()}")
    with quiet_import():
        import fairseq

        if fairseq.__version__ not in SUPPORTED_FAIRSEQ:
            known = ", ".join(SUPPORTED_FAIRSEQ)
            problem = f"fairseq {fairseq.__version__} is not supported (only {known})"
            raise UserError(f"{problem}: {_how_to_install()}")
        # Importing a module registers the classes that it defines, or makes loading safe.
        from fairseq_mhe import safe_loading  # noqa: F401
        from fairseq_mhe.models import families, loss, optimizer, understanding  # noqa: F401


def fix_fairseq() -> None:
    """Mend bugs of fairseq in this process (fairseq_mhe/fairseq_fixes.py has the list).

    Our commands call it, and fairseq's do with ``--user-dir``; a program calls it if it wants to.
    """
    register()
    from fairseq_mhe import fairseq_fixes

    fairseq_fixes.apply()


def _how_to_install() -> str:
    if sys.version_info < (3, 13):
        return "pip install ve-fairseq==0.12.3"
    return "install fairseq-fixed 0.12.3.1, by the lines of docs/install.md"


def _is_user_dir() -> bool:
    """Return whether a command of fairseq imports this package because of ``--user-dir``."""
    utils = sys.modules.get("fairseq.utils")
    importer = getattr(utils, "import_user_module", None)
    return "fairseq_cli" in sys.modules and hasattr(importer, "memo")


def __getattr__(name: str) -> Any:
    """Import ``Translator`` when a program first uses it: training never does."""
    if name != "Translator":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    with quiet_import():
        from fairseq_mhe.deploy.translator import Translator
    return Translator


if _is_user_dir():
    show_as_one_line()
    fix_fairseq()
elif "fairseq_mhe_cli" not in sys.modules and importlib.util.find_spec("fairseq"):
    register()
