"""Hides warnings and log lines of fairseq, hydra and torch that do not concern the user."""

import contextlib
import functools
import logging
import warnings
from collections.abc import Iterator


def quieten_start_up() -> None:
    """Ignore warnings of fairseq, hydra and torch about each other until the process ends."""
    ignore = functools.partial(warnings.filterwarnings, "ignore")
    for module in (r"fairseq(?!_mhe)", r"torch\.", r"omegaconf\."):
        for category in (DeprecationWarning, FutureWarning, PendingDeprecationWarning):
            ignore(category=category, module=module)
    # hydra's deprecations are plain UserWarnings; one of them names a module outside hydra.
    ignore(category=UserWarning, module=r"hydra\.")
    ignore(message=r"\n'config' is validated against ConfigStore schema")
    # fairseq asks for pinned memory even where there is no GPU.
    ignore(message=r"'pin_memory' argument is set as true but no accelerator is found")


@contextlib.contextmanager
def quiet_import() -> Iterator[None]:
    """Hide the warnings and log lines of importing fairseq, and undo its changes to logging.

    A model of fairseq calls ``logging.basicConfig(level=DEBUG)``: then every library logs.
    """
    root = logging.getLogger()
    handlers = list(root.handlers)
    level = root.level
    disabled = root.manager.disable
    logging.disable(logging.WARNING)  # hides such lines as "Please install tensorboardX"
    try:
        with warnings.catch_warnings(action="ignore"):
            yield
    finally:
        logging.disable(disabled)
        root.handlers[:] = handlers
        root.setLevel(level)


@contextlib.contextmanager
def quiet_fairseq() -> Iterator[None]:
    """Hide fairseq's log lines, and torch's warning about the masks that fairseq passes to it."""
    logger = logging.getLogger("fairseq")
    level = logger.level
    with warnings.catch_warnings():
        warnings.filterwarnings(
            "ignore", "Support for mismatched key_padding_mask and attn_mask"
        )
        logger.setLevel(logging.WARNING)
        try:
            yield
        finally:
            logger.setLevel(level)
