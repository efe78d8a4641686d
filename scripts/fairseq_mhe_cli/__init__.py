"""The command ``fairseq-mhe``, beside the library as fairseq_cli is beside fairseq.

``import fairseq_mhe`` loads fairseq and torch, which takes seconds, and registers our models. In a
process that has loaded this package, a subcommand does that itself if it needs them.
"""

from fairseq_mhe.cli import main

__all__ = ["main"]
