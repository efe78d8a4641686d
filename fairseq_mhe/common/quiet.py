"""Hiding what fairseq, hydra and torch say about each other's code, and nothing else."""

import contextlib
import functools
import logging
import sys
import warnings
from collections.abc import Iterator


def quieten_start_up() -> None:
    """Ignore warnings of fairseq, hydra and torch about each other, in commands, for good."""
    ignore = functools.partial(warnings.filterwarnings, "ignore")
    for module in (r"fairseq(?!_mhe)", r"torch\.", r"omegaconf\."):
        for category in (DeprecationWarning, FutureWarning, PendingDeprecationWarning):
            ignore(category=category, module=module)
    # hydra marks its deprecations as plain UserWarnings, one of them from no module of its own.
    ignore(category=UserWarning, module=r"hydra\.")
    ignore(message=r"\n'config' is validated against ConfigStore schema")
    # fairseq always asks for pinned memory, whether there is a GPU or not.
    ignore(message=r"'pin_memory' argument is set as true but no accelerator is found")


@contextlib.contextmanager
def quiet_import() -> Iterator[None]:
    """Import fairseq inside without warnings about its own code, and without any logging.

    One of its models calls ``logging.basicConfig(level=DEBUG)``, after which every library prints.
    """
    root = logging.getLogger()
    before = list(root.handlers)
    level = root.level
    # A command of fairseq has imported it.
    if "fairseq" in sys.modules and level == logging.DEBUG:
        level = logging.WARNING
        for handler in root.handlers:  # those that basicConfig made without a format
            if handler.formatter and handler.formatter._fmt == logging.BASIC_FORMAT:
                before.remove(handler)
    disabled = root.manager.disable
    logging.disable(logging.WARNING)  # "Please install tensorboardX", for one
    try:
        with warnings.catch_warnings(action="ignore"):
            yield
    finally:
        logging.disable(disabled)
        root.handlers[:] = before
        root.setLevel(level)


@contextlib.contextmanager
def quiet_fairseq() -> Iterator[None]:
    """Keep fairseq's log lines off the screen, and torch's advice on how fairseq calls it."""
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
