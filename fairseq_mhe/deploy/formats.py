"""The formats that a bundle can have: one entry here each.

A format is a module of this room with a function ``write(trained, folder)``, which writes its files
(weights, configuration, dictionaries) into an empty folder, and a function ``example(trained)``:
the text of example.py, a program of about ten lines that translates one line with no more than the
packages that the format needs. What all formats have (subword model, model card, bundle.json,
checksums) is export's to add.
"""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from fairseq_mhe.deploy import ctranslate2_format, fairseq_format, huggingface_format
from fairseq_mhe.deploy.trained import Trained


@dataclass(frozen=True)
class Format:
    """How one format is written.

    ``write`` raises UserError where the model cannot be held, or a package is missing.
    ``needs``: what pip installs to run the example; ``notes``: sentences for the model card.
    """

    write: Callable[[Trained, Path], None]
    example: Callable[[Trained], str]
    needs: tuple[str, ...]
    notes: tuple[str, ...] = ()


FORMATS = {
    "fairseq": Format(
        fairseq_format.write, fairseq_format.example, ("fairseq-mhe[fairseq,translate]",)
    ),
    "ctranslate2": Format(
        ctranslate2_format.write,
        ctranslate2_format.example,
        ("ctranslate2", "sacremoses", "subword-nmt", "sentencepiece"),
        ("Keys and values that heads share are stored once: CTranslate2's multi-query layout.",),
    ),
    "huggingface": Format(
        huggingface_format.write,
        huggingface_format.example,
        ("transformers", "torch"),
        (
            "transformers loads it with classes of its own; tokenizer.json does all that is done "
            "to text. A stock class keeps keys and values of all heads, whatever the kind of "
            "attention was.",
        ),
    ),
}
