"""What the demonstration page shows of a model: translation, time, cache, and where it looks."""

import tempfile
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from fairseq.tasks.translation import TranslationConfig, TranslationTask

from fairseq_mhe.common.errors import UserError
from fairseq_mhe.deploy import fairseq_format
from fairseq_mhe.deploy.bundle import open_bundle
from fairseq_mhe.deploy.fairseq_engine import FairseqEngine
from fairseq_mhe.deploy.trained import Trained
from fairseq_mhe.deploy.translator import Translator
from fairseq_mhe.models.counting import cache_bytes
from fairseq_mhe.report.attention_map import attention_map, draw, encode


@dataclass(frozen=True)
class Shown:
    """A sentence translated: ``cache`` in bytes of float32 at its end, ``picture`` a PNG."""

    translation: str
    seconds: float
    cache: int
    picture: bytes


class DemoModel:
    """A bundle in memory, on the CPU."""

    def __init__(self, folder: Path) -> None:
        """Raises UserError where it is no bundle of the format fairseq."""
        bundle = open_bundle(folder)
        if bundle.format != "fairseq":
            raise UserError(
                f"{folder} is a bundle for {bundle.format}, whose attention cannot be looked into: "
                "export the model with --format fairseq"
            )
        trained = fairseq_format.read(bundle)
        self.languages = bundle.languages
        self.facts = bundle.facts
        self.attention = trained.source.attention_words
        self._trained: Trained = trained
        #: A page's tabs are threads, and what a map is drawn of is taken from the model itself.
        self._lock = threading.Lock()
        engine = FairseqEngine(trained, cpu=True)
        parts = (trained.text, engine, trained.decoding, trained.positions)
        self._translator = Translator(*parts, str(folder))
        self._translator.translate(["."])  # the first time takes longer

    def show(self, sentence: str) -> Shown:
        """Translate a sentence, and draw the cross-attention.

        Raises:
            UserError: it is empty or too long.
        """
        trained = self._trained
        model: Any = trained.source.model
        text = trained.text
        task = TranslationTask(TranslationConfig(), *trained.dictionaries)
        longest = trained.positions
        source = encode(sentence, 0, text, task.source_dictionary, longest[0])  # (1, S)
        with self._lock:
            begun = time.perf_counter()
            (translation,) = self._translator.translate([sentence])
            seconds = time.perf_counter() - begun
        target = encode(translation, 1, text, task.target_dictionary, longest[1])  # (1, T)
        with torch.inference_mode(), self._lock:
            found = attention_map(model, task, "cross", source, target)
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "map.png"
            draw(found, f"cross-attention, {self.attention}", path)
            picture = path.read_bytes()
        cache = cache_bytes(model).per_sentence(
            source.size(1), target.size(1), beam=trained.decoding.beam
        )
        return Shown(translation, seconds, cache, picture)
