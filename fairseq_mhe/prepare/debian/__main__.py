"""``python -m fairseq_mhe.prepare.debian``: the command, where the libraries that only it needs are installed."""

from __future__ import annotations

import importlib
import importlib.util

from fairseq_mhe.common.errors import UserError, one_clear_line

LIBRARIES = ("arpy", "lxml", "polib", "zstandard")


def main() -> None:
    """Run the command, or say in one line what it lacks."""
    missing = [name for name in LIBRARIES if importlib.util.find_spec(name) is None]
    with one_clear_line():
        if missing:
            raise UserError(
                f"not installed: {', '.join(missing)}; pip install 'fairseq-mhe[debian]'"
            )
    importlib.import_module("fairseq_mhe.prepare.debian.command").main()


if __name__ == "__main__":
    main()
