"""A test set translated by fairseq or CTranslate2 with trained models; for the study of engines."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from fairseq import utils
from fairseq.dataclass.configs import GenerationConfig

from fairseq_mhe.bench.benchmark import Cell, Settings, Workload
from fairseq_mhe.bench.meters import Stopwatch
from fairseq_mhe.checkpoints.checkpoint import load_by_fairseq
from fairseq_mhe.convert.to_ctranslate2 import open_translator
from fairseq_mhe.prepare.data_folder import DataFolder, load_task


@dataclass(frozen=True)
class Engine:
    """A checkpoint for fairseq, or a folder for CTranslate2, to translate with in a precision."""

    path: Path
    compute_type: str = "float32"


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
        self._engine = self.settings.engines[self.variant]
        self._task = load_task(self.settings.data)
        self._task.load_dataset(self.settings.subset)
        self._dataset = self._task.dataset(self.settings.subset)
        ready = self._fairseq if self._engine.path.is_file() else self._ctranslate2
        self._translate = ready(cell)
        self._found: list[str] = []

    def repetition(self) -> dict[str, float]:
        """Seconds to translate it all."""
        watch = Stopwatch(self.device)
        with watch.part("total"):
            self._found = self._translate()
        return watch.seconds()

    def facts(self) -> dict[str, Any]:
        """Sentences, the size of the model's file, and the translations, in subwords."""
        path = self._engine.path
        size = (path if path.is_file() else path / "model.bin").stat().st_size
        return {"units": len(self._found), "file_bytes": size, "translations": self._found}

    def _fairseq(self, cell: Cell) -> Callable[[], list[str]]:
        """What translates with fairseq, in batches that are made already."""
        dataset, batches = self._dataset, []
        for indices in dataset.batch_by_size(
            dataset.ordered_indices(), max_tokens=cell["max_tokens"], required_batch_size_multiple=1
        ):
            batch = dataset.collater([dataset[index] for index in indices])
            batches.append(utils.move_to_cuda(batch) if self.device.type == "cuda" else batch)
        # Nested, it reaches checkpoints too that are older than the option.
        int8 = self._engine.compute_type == "int8"
        overrides = {"model": {"int8_generation": True}} if int8 else {}
        model: Any = load_by_fairseq(self._engine.path, self._task, overrides).to(self.device)
        names = ("beam", "lenpen", "max_len_a", "max_len_b")
        generation = GenerationConfig(**{name: cell[name] for name in names})
        model.prepare_for_inference_(SimpleNamespace(generation=generation))
        generator = self._task.build_generator([model], generation)
        words = self._task.target_dictionary

        def translate() -> list[str]:
            found = {}
            for batch in batches:
                hypotheses = self._task.inference_step(generator, [model], batch)
                for index, (best, *_) in zip(batch["id"].tolist(), hypotheses, strict=True):
                    tokens = best["tokens"].tolist()[:-1]
                    found[index] = " ".join(words[token] for token in tokens)
            return [found[index] for index in range(len(dataset))]

        return translate

    def _ctranslate2(self, cell: Cell) -> Callable[[], list[str]]:
        """What translates with CTranslate2, which makes its own batches."""
        words, sentences = self._task.source_dictionary, []
        for index in range(len(self._dataset)):
            tokens = self._dataset[index]["source"].tolist()[:-1]
            sentences.append([words[token] for token in tokens])
        longest = max(len(sentence) for sentence in sentences) + 1
        search = {
            "beam_size": cell["beam"],
            "length_penalty": cell["lenpen"],
            # One limit for all: fairseq's depends on each batch's longest source.
            "max_decoding_length": int(cell["max_len_a"] * longest + cell["max_len_b"]),
            "max_batch_size": cell["max_tokens"],
            "batch_type": "tokens",
        }
        engine, settings = self._engine, self.settings
        translator = open_translator(
            engine.path, settings.device, engine.compute_type, settings.threads
        )

        def translate() -> list[str]:
            results = translator.translate_batch(sentences, **search)
            return [" ".join(result.hypotheses[0]) for result in results]

        return translate
