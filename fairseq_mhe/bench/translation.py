"""A test set translated by fairseq or CTranslate2 with trained models; for the study of engines."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from fairseq import utils
from fairseq.dataclass.configs import GenerationConfig

from fairseq_mhe.bench.benchmark import Cell, Settings, Workload
from fairseq_mhe.bench.ctranslate import open_translator
from fairseq_mhe.bench.meters import Stopwatch
from fairseq_mhe.checkpoints.checkpoint import load_by_fairseq
from fairseq_mhe.prepare.data_folder import DataFolder, load_task


@dataclass(frozen=True)
class Engine:
    """A checkpoint for fairseq, or a folder for CTranslate2, to translate with in a precision."""

    path: Path
    compute_type: str = "float32"

    @property
    def fairseq(self) -> bool:
        """Whether it is a checkpoint."""
        return self.path.is_file()


@dataclass(frozen=True, kw_only=True)
class TranslationSettings(Settings):
    """A split of a data folder, and the engines by the names of the variants."""

    data: DataFolder
    subset: str
    engines: Mapping[str, Engine]


class TranslationWorkload(Workload):
    """Cells: ``beam``, ``lenpen``, ``max_len_a``, ``max_len_b``, ``max_tokens``, as fairseq's."""

    settings: TranslationSettings

    def prepare(self, cell: Cell) -> None:
        """The model, loaded, and the sentences, read."""
        self._cell = cell
        self._engine = self.settings.engines[self.variant]
        self._task = load_task(self.settings.data)
        self._task.load_dataset(self.settings.subset)
        self._dataset = self._task.dataset(self.settings.subset)
        self._found: list[str] = []
        if self._engine.fairseq:
            self._prepare_fairseq()
        else:
            self._prepare_ctranslate2()

    def repetition(self) -> dict[str, float]:
        """Seconds to translate it all."""
        watch = Stopwatch(self.device)
        with watch.part("total"):
            self._found = self._by_fairseq() if self._engine.fairseq else self._by_ctranslate2()
        return watch.seconds()

    def facts(self) -> dict[str, Any]:
        """Sentences, the size of the model's file, and the translations, in subwords."""
        path = self._engine.path
        size = (path if self._engine.fairseq else path / "model.bin").stat().st_size
        return {"units": len(self._found), "file_bytes": size, "translations": self._found}

    def _prepare_fairseq(self) -> None:
        indices, most = self._dataset.ordered_indices(), self._cell["max_tokens"]
        self._batches = []
        for batch in self._dataset.batch_by_size(
            indices, max_tokens=most, required_batch_size_multiple=1
        ):
            collated = self._dataset.collater([self._dataset[index] for index in batch])
            on_gpu = self.device.type == "cuda"
            self._batches.append(utils.move_to_cuda(collated) if on_gpu else collated)
        # Nested, it reaches checkpoints too that are older than the option.
        int8 = self._engine.compute_type == "int8"
        overrides = {"model": {"int8_generation": True}} if int8 else {}
        model = load_by_fairseq(self._engine.path, self._task, overrides)
        names = ("beam", "lenpen", "max_len_a", "max_len_b")
        generation = GenerationConfig(**{name: self._cell[name] for name in names})
        self._model: Any = model.to(self.device)
        self._model.prepare_for_inference_(SimpleNamespace(generation=generation))
        self._generator = self._task.build_generator([self._model], generation)

    def _prepare_ctranslate2(self) -> None:
        self._sentences: list[list[str]] = []
        for index in range(len(self._dataset)):
            source = self._dataset[index]["source"].tolist()[:-1]
            self._sentences.append(_words(self._task.source_dictionary, source))
        precision = self._engine.compute_type
        self._translator = open_translator(self._engine.path, precision, self.settings)

    def _by_fairseq(self) -> list[str]:
        found = {}
        for batch in self._batches:
            hypotheses = self._task.inference_step(self._generator, [self._model], batch)
            for index, (best, *_) in zip(batch["id"].tolist(), hypotheses, strict=True):
                tokens = best["tokens"].tolist()[:-1]
                found[index] = " ".join(_words(self._task.target_dictionary, tokens))
        return [found[index] for index in range(len(self._dataset))]

    def _by_ctranslate2(self) -> list[str]:
        longest = max(len(sentence) for sentence in self._sentences) + 1
        results = self._translator.translate_batch(
            self._sentences,
            beam_size=self._cell["beam"],
            length_penalty=self._cell["lenpen"],
            # One limit for all: fairseq's depends on each batch's longest source.
            max_decoding_length=int(self._cell["max_len_a"] * longest + self._cell["max_len_b"]),
            max_batch_size=self._cell["max_tokens"],
            batch_type="tokens",
        )
        return [" ".join(result.hypotheses[0]) for result in results]


def _words(dictionary: Any, tokens: Iterable[int]) -> list[str]:
    return [dictionary[token] for token in tokens]
