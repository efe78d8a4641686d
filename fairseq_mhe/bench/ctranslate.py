"""CTranslate2 translating the same sentences with the stock model in 8-bit integers: what there is to be beaten."""

from __future__ import annotations

import argparse
import importlib.util
import tempfile
from pathlib import Path
from typing import Any

import torch

from fairseq_mhe.bench import models
from fairseq_mhe.bench.clock import Stopwatch
from fairseq_mhe.bench.data import translation_batch
from fairseq_mhe.bench.settings import STOCK, Settings
from fairseq_mhe.bench.workload import Cell, Workload
from fairseq_mhe.common.errors import UserError
from fairseq_mhe.models.build import build, make_task

_PRECISION = "int8"


def check_installed() -> None:
    """See that CTranslate2 is there.

    Raises:
        UserError: it is not.
    """
    if importlib.util.find_spec("ctranslate2") is None:
        raise UserError("--ctranslate2 needs the package ctranslate2: pip install ctranslate2")


class CTranslate2Workload(Workload):
    """Cells as ``GenerationWorkload``'s; the dtype makes no difference."""

    def __init__(self, variant: str, settings: Settings) -> None:
        super().__init__(variant, settings)
        self._task = make_task(settings.vocabulary)
        with tempfile.TemporaryDirectory() as folder:
            self._translator, self._weight_bytes = self._load(Path(folder))

    def prepare(self, cell: Cell) -> None:
        """The sentences as words, without the end of sentence, which CTranslate2 adds itself."""
        dictionary = self._task.source_dictionary
        batch = translation_batch(
            dictionary, cell["batch"], cell["source_length"], self.settings.seed
        )
        rows = batch["net_input"]["src_tokens"].tolist()  # (B, S)
        self._sentences = [
            [dictionary[token] for token in row if token >= dictionary.nspecial] for row in rows
        ]
        self._cell = cell

    def repetition(self) -> dict[str, float]:
        """Seconds of the search."""
        watch, length = Stopwatch(self.device), self._cell["length"]
        with watch.part("total"):
            found = self._translator.translate_batch(
                self._sentences,
                beam_size=self._cell["beam"],
                min_decoding_length=length,
                max_decoding_length=length,
            )
        lengths = {len(result.hypotheses[0]) for result in found}
        if lengths != {length}:
            raise RuntimeError(
                f"outputs of {length} tokens were forced, but there are some of {sorted(lengths)}"
            )
        return watch.seconds()

    def facts(self) -> dict[str, Any]:
        """Sentences, and bytes of the weights."""
        return {"units": len(self._sentences), "weight_bytes": self._weight_bytes}

    def _load(self, folder: Path) -> tuple[Any, int]:
        """Write a checkpoint of the stock model as fairseq does, and let CTranslate2's own converter read it."""
        import ctranslate2

        cfg = models.configuration(STOCK, self.settings, "float32")
        state = build(cfg.model, self._task, cfg.common.seed).state_dict()
        args = argparse.Namespace(
            **{
                **vars(cfg.model),
                "task": "translation",
                "source_lang": "source",
                "target_lang": "target",
            }
        )
        torch.save({"args": args, "cfg": None, "model": state}, folder / "model.pt")
        for language in ("source", "target"):
            self._task.source_dictionary.save(str(folder / f"dict.{language}.txt"))
        converter = ctranslate2.converters.FairseqConverter(str(folder / "model.pt"), str(folder))
        converter.convert(str(folder / _PRECISION), quantization=_PRECISION)
        translator = ctranslate2.Translator(
            str(folder / _PRECISION),
            device=self.settings.device,
            compute_type=_PRECISION,
            inter_threads=1,
            intra_threads=self.settings.threads,
        )
        return translator, (folder / _PRECISION / "model.bin").stat().st_size
