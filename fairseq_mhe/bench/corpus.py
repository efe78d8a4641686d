"""A real data set translated by fairseq or by CTranslate2 with trained models: the work of one measured process."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from fairseq import checkpoint_utils, utils
from fairseq.dataclass.configs import GenerationConfig
from fairseq.tasks.translation import TranslationTask

from fairseq_mhe.bench.clock import Stopwatch
from fairseq_mhe.bench.settings import Settings
from fairseq_mhe.bench.workload import Cell, Workload
from fairseq_mhe.convert.sentences import load_task
from fairseq_mhe.prepare.data_folder import DataFolder


@dataclass(frozen=True)
class Engine:
    """A checkpoint for fairseq, or a folder for CTranslate2, to translate with in ``compute_type``: float32 or int8."""

    path: str
    compute_type: str = "float32"

    @property
    def fairseq(self) -> bool:
        """Whether it is a checkpoint."""
        return Path(self.path).is_file()


@dataclass(frozen=True)
class CorpusSettings(Settings):
    """A split of a data folder in fairseq's binary form, and the engines by the names of the variants."""

    binary: str = ""
    languages: tuple[str, str] = ("", "")
    subset: str = "test"
    engines: Mapping[str, Engine] = field(default_factory=dict)


class CorpusWorkload(Workload):
    """Cells: ``beam``, ``lenpen``, ``max_len_a``, ``max_len_b``, and ``max_tokens`` of a batch, as fairseq counts."""

    settings: CorpusSettings

    def prepare(self, cell: Cell) -> None:
        """The model, loaded, and the sentences, read."""
        self._cell = cell
        self._engine = self.settings.engines[self.variant]
        self._task = self._make_task()
        self._task.load_dataset(self.settings.subset)
        dataset = self._task.dataset(self.settings.subset)
        self._sources = [dataset[index]["source"].tolist()[:-1] for index in range(len(dataset))]
        self._found: list[str] = []
        if self._engine.fairseq:
            indices = dataset.ordered_indices()
            found = dataset.batch_by_size(
                indices, max_tokens=cell["max_tokens"], required_batch_size_multiple=1
            )
            self._batches = [
                self._placed(dataset.collater([dataset[i] for i in batch])) for batch in found
            ]
            self._model, self._generator = self._load_fairseq()
        else:
            words = self._task.source_dictionary
            self._sentences = [[words[token] for token in source] for source in self._sources]
            self._translator = self._load_ctranslate2()

    def repetition(self) -> dict[str, float]:
        """Seconds to translate it all."""
        watch = Stopwatch(self.device)
        with watch.part("total"):
            found = (
                dict(self._by_fairseq())
                if self._engine.fairseq
                else dict(enumerate(self._by_ctranslate2()))
            )
        self._found = [found[index] for index in range(len(self._sources))]
        return watch.seconds()

    def facts(self) -> dict[str, Any]:
        """Sentences, the size of the model's file, and the translations, in subwords."""
        path = Path(self._engine.path)
        file = path if self._engine.fairseq else path / "model.bin"
        return {
            "units": len(self._found),
            "file_bytes": file.stat().st_size,
            "translations": self._found,
        }

    def _make_task(self) -> TranslationTask:
        return load_task(DataFolder(Path(self.settings.binary), self.settings.languages))

    def _load_fairseq(self) -> tuple[Any, Any]:
        # Nested, it reaches checkpoints too that are older than the option.
        overrides = (
            {"model": {"int8_generation": True}} if self._engine.compute_type == "int8" else {}
        )
        models, _ = checkpoint_utils.load_model_ensemble(
            [self._engine.path], overrides, task=self._task
        )
        names = ("beam", "lenpen", "max_len_a", "max_len_b")
        generation = GenerationConfig(**{name: self._cell[name] for name in names})
        model = models[0].to(self.device).eval()
        model.prepare_for_inference_(SimpleNamespace(generation=generation))
        return model, self._task.build_generator([model], generation)

    def _load_ctranslate2(self) -> Any:
        import ctranslate2

        return ctranslate2.Translator(
            self._engine.path,
            device=self.settings.device,
            compute_type=self._engine.compute_type,
            inter_threads=1,
            intra_threads=self.settings.threads,
        )

    def _placed(self, batch: dict[str, Any]) -> dict[str, Any]:
        return utils.move_to_cuda(batch) if self.device.type == "cuda" else batch

    def _by_fairseq(self) -> Iterator[tuple[int, str]]:
        words = self._task.target_dictionary
        for batch in self._batches:
            found = self._task.inference_step(self._generator, [self._model], batch)
            for index, hypotheses in zip(batch["id"].tolist(), found, strict=True):
                tokens = hypotheses[0]["tokens"].tolist()[:-1]
                yield index, " ".join(words[token] for token in tokens)

    def _by_ctranslate2(self) -> Iterator[str]:
        longest = max(len(sentence) for sentence in self._sentences) + 1
        found = self._translator.translate_batch(
            self._sentences,
            beam_size=self._cell["beam"],
            length_penalty=self._cell["lenpen"],
            # One limit for all: fairseq's depends on each batch's longest source.
            max_decoding_length=int(self._cell["max_len_a"] * longest + self._cell["max_len_b"]),
            max_batch_size=self._cell["max_tokens"],
            batch_type="tokens",
        )
        return (" ".join(result.hypotheses[0]) for result in found)
