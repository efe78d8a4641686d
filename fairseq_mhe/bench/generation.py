"""Translation by fairseq's own beam search, with the work fixed: every output has the same number of tokens."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from fairseq import utils
from fairseq.tasks.translation import TranslationTask
from omegaconf import DictConfig
from torch import Tensor, nn

from fairseq_mhe.bench import models
from fairseq_mhe.bench.clock import Stopwatch
from fairseq_mhe.bench.data import translation_batch
from fairseq_mhe.bench.settings import DTYPES
from fairseq_mhe.bench.workload import Cell, Workload
from fairseq_mhe.models.build import build, make_task

#: Where a search spends its time, outside of reordering; the sublayers are the decoder's.
PARTS = (
    "encoder",
    "self-attention",
    "cross-attention",
    "feed-forward",
    "output projection",
    "softmax",
    "search step",
)


class GenerationWorkload(Workload):
    """Cells: ``beam``, ``length`` of the outputs, ``source_length``, ``batch`` (sentences), ``dtype``.

    Lengths count the end of sentence. With random weights no output would end of itself, so that
    the minimum length is the maximum: every sentence takes ``length`` steps of the decoder.
    """

    _built: tuple[int, str] | None = None

    def prepare(self, cell: Cell) -> None:
        """The model as fairseq-generate makes it ready, its search, and the batch."""
        if self._built != (
            cell["beam"],
            cell["dtype"],
        ):  # fairseq readies a model for one beam, once
            self._cfg, self._task, self._model = self._make(cell)
            self._built = (cell["beam"], cell["dtype"])
        self._length = cell["length"]
        self._cfg.generation.min_len = self._cfg.generation.max_len_b = (
            self._length - 1
        )  # these leave out the end
        self._generator = self._task.build_generator([self._model], self._cfg.generation)
        batch = translation_batch(
            self._task.source_dictionary, cell["batch"], cell["source_length"], self.settings.seed
        )
        self._batch = utils.move_to_cuda(batch) if self.device.type == "cuda" else batch
        self._held: dict[str, int] = {}

    def repetition(self) -> dict[str, float]:
        """Seconds of the search: ``total``, of it ``reorder`` (following the hypotheses) and, on a CPU, ``PARTS``."""
        watch, kept = Stopwatch(self.device), _Kept()
        _spy(self._model.encoder, "reorder_encoder_out", "reorder", watch, kept.encoder_output)
        _spy(
            self._model.decoder,
            "reorder_incremental_state_scripting",
            "reorder",
            watch,
            kept.incremental_state,
        )
        if self.device.type == "cpu":  # where looking at the clock is free
            for owner, method, part in _parts(self._model, self._generator):
                _spy(owner, method, part, watch)
        with watch.part("total"):
            found = self._task.inference_step(self._generator, [self._model], self._batch)
        self._check(found)
        self._held = kept.held()
        return watch.seconds()

    def facts(self) -> dict[str, Any]:
        """Sentences, bytes of the weights, and bytes held at the last step by cache and encoder output."""
        return {
            "units": len(self._batch["id"]),
            "weight_bytes": models.weight_bytes(self._model),
            **self._held,
        }

    def _make(self, cell: Cell) -> tuple[DictConfig, TranslationTask, Any]:
        cfg = models.configuration(self.variant, self.settings, cell["dtype"])
        cfg.generation.beam, cfg.generation.max_len_a = cell["beam"], 0
        task = make_task(self.settings.vocabulary, config=cfg.task)
        model: Any = build(cfg.model, task, cfg.common.seed).to(self.device, DTYPES[cell["dtype"]])
        model.prepare_for_inference_(cfg)
        return cfg, task, model

    def _check(self, found: list[list[dict[str, Tensor]]]) -> None:
        lengths = {len(hypothesis["tokens"]) for hypotheses in found for hypothesis in hypotheses}
        if lengths != {self._length}:
            raise RuntimeError(
                f"outputs of {self._length} tokens were forced, but there are some of {sorted(lengths)}"
            )


class _Kept:
    """What the search held when it last reordered: fairseq gives it to nobody else."""

    def __init__(self) -> None:
        self._encoder_output: Any = None
        self._state: Any = None

    def encoder_output(self, _: tuple[Any, ...], result: Any) -> None:
        self._encoder_output = result

    def incremental_state(self, args: tuple[Any, ...], _: Any) -> None:
        self._state = args[0]

    def held(self) -> dict[str, int]:
        """Bytes; fairseq fills the state in place, so that it has the last step's keys and values."""
        return {
            "cache_bytes": storage_bytes(self._state),
            "encoder_output_bytes": storage_bytes(self._encoder_output),
        }


def storage_bytes(value: Any) -> int:
    """Bytes of memory behind all tensors in nested dictionaries and lists; memory that several share counts once."""
    storages = {
        tensor.untyped_storage().data_ptr(): tensor.untyped_storage().nbytes()
        for tensor in _tensors(value)
    }
    return sum(storages.values())


def _tensors(value: Any) -> Iterator[Tensor]:
    if isinstance(value, Tensor):
        yield value
    elif isinstance(value, dict):
        for item in value.values():
            yield from _tensors(item)
    elif isinstance(value, (list, tuple)):
        for item in value:
            yield from _tensors(item)


def _parts(model: Any, generator: Any) -> Iterator[tuple[nn.Module, str, str]]:
    """The modules and methods that ``PARTS`` stand for."""
    yield model.encoder, "forward_torchscript", "encoder"
    for layer in model.decoder.layers:
        yield layer.self_attn, "forward", "self-attention"
        yield layer.encoder_attn, "forward", "cross-attention"
        yield layer.fc1, "forward", "feed-forward"
        yield layer.fc2, "forward", "feed-forward"
    yield model.decoder, "output_layer", "output projection"
    yield model, "get_normalized_probs", "softmax"
    yield generator.search, "step", "search step"


def _spy(
    owner: nn.Module,
    name: str,
    part: str,
    watch: Stopwatch,
    look: Callable[[tuple[Any, ...], Any], None] = lambda args, result: None,
) -> None:
    """Replace a method of one module by itself, timed as ``part`` and looked at."""
    method = getattr(type(owner), name).__get__(owner)

    def timed(*args: Any, **kwargs: Any) -> Any:
        with watch.part(part):
            result = method(*args, **kwargs)
        look(args, result)
        return result

    setattr(owner, name, timed)
