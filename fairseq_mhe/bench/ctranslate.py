"""CTranslate2 translating the same sentences with the stock model in 8-bit integers."""

from __future__ import annotations

import argparse
import importlib.util
import tempfile
from pathlib import Path
from typing import Any

import torch
from torch import nn

from fairseq_mhe.bench import models
from fairseq_mhe.bench.benchmark import STOCK, Cell, Settings, Workload
from fairseq_mhe.bench.meters import Stopwatch
from fairseq_mhe.bench.sentences import translation_batch
from fairseq_mhe.common.errors import UserError

#: The name of the variant.
CTRANSLATE2 = "ctranslate2_int8"
_PRECISION = "int8"


def check_installed() -> None:
    """See that CTranslate2 is there.

    Raises:
        UserError: CTranslate2 is missing.
    """
    if importlib.util.find_spec("ctranslate2") is None:
        raise UserError("--ctranslate2 needs the package ctranslate2: pip install ctranslate2")


def open_translator(folder: Path, precision: str, settings: Settings) -> Any:
    """A converted model, to translate one batch after another with all threads."""
    import ctranslate2

    return ctranslate2.Translator(
        str(folder),
        device=settings.device,
        compute_type=precision,
        inter_threads=1,
        intra_threads=settings.threads,
    )


class CTranslate2Workload(Workload):
    """Cells as ``GenerationBenchmark``'s; the dtype makes no difference."""

    def __init__(self, variant: str, settings: Settings) -> None:
        super().__init__(variant, settings)
        cfg = models.configuration(STOCK, settings, "float32")
        self._task, model = models.build(cfg, settings.vocabulary)
        with tempfile.TemporaryDirectory() as folder:
            self._translator, self._weight_bytes = self._load(cfg.model, model, Path(folder))

    def prepare(self, cell: Cell) -> None:
        """The sentences as words, without the end of sentence, which CTranslate2 adds itself."""
        words, seed = self._task.source_dictionary, self.settings.seed
        batch = translation_batch(words, cell["batch"], cell["source_length"], seed)
        self._sentences: list[list[str]] = []
        for row in batch["net_input"]["src_tokens"].tolist():  # (B, S)
            self._sentences.append([words[token] for token in row if token >= words.nspecial])
        self._beam, self._length = cell["beam"], cell["length"]

    def repetition(self) -> dict[str, float]:
        """Seconds of the search."""
        watch, length = Stopwatch(self.device), self._length
        limits = {"min_decoding_length": length, "max_decoding_length": length}
        with watch.part("total"):
            found = self._translator.translate_batch(
                self._sentences, beam_size=self._beam, **limits
            )
        models.check_forced(length, {len(result.hypotheses[0]) for result in found})
        return watch.seconds()

    def facts(self) -> dict[str, Any]:
        """Sentences, and bytes of the weights."""
        return {"units": len(self._sentences), "weight_bytes": self._weight_bytes}

    def _load(self, options: Any, model: nn.Module, folder: Path) -> tuple[Any, int]:
        """Write the stock model as fairseq does, and let CTranslate2's own converter read it."""
        import ctranslate2

        task = {"task": "translation", "source_lang": "source", "target_lang": "target"}
        args = argparse.Namespace(**{**vars(options), **task})
        torch.save({"args": args, "cfg": None, "model": model.state_dict()}, folder / "model.pt")
        for language in ("source", "target"):
            self._task.source_dictionary.save(str(folder / f"dict.{language}.txt"))
        converter = ctranslate2.converters.FairseqConverter(str(folder / "model.pt"), str(folder))
        converted = folder / _PRECISION
        converter.convert(str(converted), quantization=_PRECISION)
        translator = open_translator(converted, _PRECISION, self.settings)
        return translator, (converted / "model.bin").stat().st_size
