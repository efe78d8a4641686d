"""Benchmark of translation by fairseq's own beam search or CTranslate2's, with fixed lengths."""

import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import torch
from fairseq import utils
from fairseq.data.data_utils import batch_by_size

from fairseq_mhe.attention import build_attention
from fairseq_mhe.bench import models
from fairseq_mhe.bench.benchmark import DTYPES, Benchmark, Options, Values, combinations
from fairseq_mhe.bench.meters import Seconds, Stopwatch
from fairseq_mhe.bench.models import LANGUAGES, translation_batch
from fairseq_mhe.bench.variants import (
    STOCK,
    Variant,
    ctranslate2_variants,
    kind_variants,
    variants_without_graphs,
)
from fairseq_mhe.common.arguments import at_least, integer, list_of, option, positive_list
from fairseq_mhe.common.errors import UserError
from fairseq_mhe.common.progress import say
from fairseq_mhe.common.system import require
from fairseq_mhe.convert.fold import folded_parameters
from fairseq_mhe.convert.to_ctranslate2 import convert
from fairseq_mhe.models.architectures import sizes
from fairseq_mhe.prepare.data_folder import DataFolder

_CPU_TYPES = ("float32", "int8", "bfloat16")  # compute types of CTranslate2
#: Lengths of a news test in subwords: standard deviation of their logarithms, and bounds.
_SPREAD, _BOUNDS = 0.6, (4, 120)
_MAX_BATCH_TOKENS = 4096  # source tokens of a batch with such lengths
_LENGTHS = list_of(at_least(2, 1024))  # fairseq's default number of positions


@dataclass(frozen=True, kw_only=True)
class GenerationOptions(Options):
    """The options of ``fairseq-mhe bench generation``."""

    beams: Sequence[int] = option(
        (1, 5), "beam sizes; 1 is greedy search", type=positive_list, metavar="N,..."
    )
    lengths: Sequence[int] = option(
        (25, 100, 400), "tokens of source and output", type=_LENGTHS, metavar="N,..."
    )
    batch_sizes: Sequence[int] = option(
        (1, 8, 32), "sentences of a batch", type=positive_list, metavar="N,..."
    )
    sentences: int | None = integer(
        None, "N sentences with lengths as in news, not --lengths"
    )
    int8: bool = option(False, "also time kinds with generation_precision int8, on a CPU")
    bf16: bool = option(
        False,
        "also time kinds with generation_precision bf16, and stock in bf16, on a CPU",
    )
    ctranslate2: bool = option(
        False,
        "also time stock and foldable kinds in CTranslate2: float32, int8, bfloat16 (GPU: float16)",
    )
    without_graphs: bool = option(False, "also time kinds without CUDA graphs, on a GPU")


class GenerationBenchmark(Benchmark):
    """A cell has ``beam``, ``batch``, ``dtype``, and ``length`` of source and output with </s>.

    With --sentences it has their number in place of ``length``: their lengths are as in news.
    """

    title = "translation by beam search"
    legend = "Seconds, medians with quartiles. First pass: with all shapes new."
    columns: ClassVar = {
        "s": "total",
        "sentences/s": "units",
        "first pass": "first_units",
    }
    options = GenerationOptions

    @classmethod
    def cells(cls, options: GenerationOptions) -> Iterator[Values]:
        lengths = {"length": options.lengths}
        if options.sentences:
            lengths = {"sentences": [options.sentences]}
        return combinations(
            beam=options.beams, **lengths, batch=options.batch_sizes, dtype=options.dtype
        )

    @classmethod
    def variants(cls, options: GenerationOptions) -> list[Variant]:
        variants = super().variants(options)
        in_float32 = list(options.dtype) == ["float32"]
        if (options.int8 or options.bf16) and not (
            options.device == "cpu" and in_float32
        ):
            raise UserError("--int8 and --bf16 are for --device cpu and --dtype float32")
        if options.int8:
            variants += kind_variants(options.kinds, "int8")
        if options.bf16:
            variants.append(Variant("stock_bf16", precision="bf16"))
            variants += kind_variants(options.kinds, "bf16")
        if options.without_graphs:
            variants += variants_without_graphs(options.device, options.kinds)
        if options.ctranslate2:
            require("ctranslate2")
            kinds = [kind for kind in options.kinds if _is_foldable(kind, options.row)]
            variants += ctranslate2_variants(kinds, compute_types(options.device))
        return variants

    @classmethod
    def of_variant(cls, variant: Variant) -> type[Benchmark]:
        return CTranslate2Benchmark if variant.by_ctranslate2 else cls

    def prepare(self, cell: Values) -> None:
        """Load the model, and make the batches."""
        self._load(cell)
        self._batches: list[Any] = []
        self._sentences = 0
        for sentences, length in shapes(cell):
            batch = translation_batch(
                self._dictionary, sentences, length, self.settings.seed
            )
            self._batches.append((length, self._inputs(batch)))
            self._sentences += sentences

    def repetition(self) -> Seconds:
        watch = Stopwatch(self.on_gpu)
        with watch.part("total"):
            for length, inputs in self._batches:
                self._translate(inputs, length)
        return watch.seconds()

    def facts(self) -> Values:
        count = self._sentences
        return {"units": count, "first_units": count, "weight_bytes": self._weight_bytes}

    def _load(self, cell: Values) -> None:
        """Build the model as fairseq-generate does, and its beam search."""
        is_stock_in_bf16 = self.variant.precision and not self.variant.kind
        dtype = "bf16" if is_stock_in_bf16 else cell["dtype"]
        cfg, self._task, model = models.build(self.variant, self.settings, dtype)
        search = cfg.generation
        search.beam = cell["beam"]
        search.max_len_a = 0
        self._model = model.to(self.settings.device, DTYPES[dtype])
        model.prepare_for_inference_(cfg)
        self._generator = self._task.build_generator([model], search)
        self._dictionary = self._task.source_dictionary
        self._weight_bytes = models.weight_bytes(model)

    def _inputs(self, batch: Values) -> Any:
        """Return what `_translate` takes."""
        return utils.move_to_cuda(batch) if self.on_gpu else batch

    def _translate(self, inputs: Any, length: int) -> None:
        """Translate a batch into ``length`` tokens with </s>, which fairseq does not count."""
        self._generator.min_len = self._generator.max_len_b = length - 1
        self._task.inference_step(self._generator, [self._model], inputs)


class CTranslate2Benchmark(GenerationBenchmark):
    """Translation by CTranslate2, which ignores the cell's dtype."""

    _translator: Any = None

    def facts(self) -> Values:
        """Return no peak memory, because torch does not see what CTranslate2 allocates."""
        return {**super().facts(), "peak_bytes": None}

    def _load(self, cell: Values) -> None:
        """Convert the model to CTranslate2; shared heads of one of our kinds stay shared."""
        self._beam = cell["beam"]
        if self._translator:
            return
        settings = self.settings
        variant = Variant(STOCK, self.variant.kind)
        options = vars(models.configuration(Variant(STOCK), settings, "float32").model)
        _, task, model = models.build(variant, settings, "float32")
        is_ours = bool(variant.kind)
        weights = folded_parameters(model.eval()) if is_ours else model.state_dict()
        self._dictionary = task.source_dictionary
        with tempfile.TemporaryDirectory() as folder:
            dictionaries = Path(folder)
            output = dictionaries / "model"
            for language in LANGUAGES:
                self._dictionary.save(str(dictionaries / f"dict.{language}.txt"))
            data = DataFolder(dictionaries, LANGUAGES)
            convert(
                self.variant.name,
                options,
                weights,
                data,
                output,
                quantization=self.variant.precision,
                shared_heads=is_ours,
            )
            import ctranslate2  # `convert` raises UserError if it is not installed

            self._translator = ctranslate2.Translator(
                str(output),
                settings.device,
                compute_type=self.variant.precision,
                intra_threads=settings.threads,
            )
            self._weight_bytes = (output / "model.bin").stat().st_size

    def _inputs(self, batch: Values) -> list[list[str]]:
        """Return sentences as words, without </s>, which CTranslate2 adds itself."""
        dictionary = self._dictionary
        rows = batch["net_input"]["src_tokens"].tolist()  # (B, S)
        first = dictionary.nspecial
        return [[dictionary[n] for n in row if n >= first] for row in rows]

    def _translate(self, inputs: Any, length: int) -> None:
        self._translator.translate_batch(
            inputs,
            beam_size=self._beam,
            min_decoding_length=length,
            max_decoding_length=length,
        )


def compute_types(device: str) -> list[str]:
    """Return CTranslate2's compute types to measure; say which one this processor lacks."""
    if device == "cuda":
        return ["float16"]
    import ctranslate2

    supported = ctranslate2.get_supported_compute_types(device)
    for name in _CPU_TYPES:
        if name not in supported:
            say(f"CTranslate2 does not compute in {name} on this processor: left out")
    return [name for name in _CPU_TYPES if name in supported]


def _is_foldable(kind: str, row: str) -> bool:
    """Return whether fairseq's own model, and so CTranslate2, can hold a kind of attention."""
    size = sizes(row)
    with torch.device("meta"):
        sublayer = build_attention(kind, size.embed_dim, size.heads)
    reason = sublayer.why_not_foldable()
    if reason:
        say(f"{kind} is left out in CTranslate2: {reason}")
    return not reason


def shapes(cell: Values) -> list[tuple[int, int]]:
    """Return for each batch the number of sentences and the tokens of the longest one."""
    if "sentences" not in cell:
        return [(cell["batch"], cell["length"])]
    random = np.random.default_rng(1)  # independent of --seed
    news = models.random_lengths(random, cell["sentences"], _SPREAD)
    lengths = np.sort(np.clip(news, *_BOUNDS).astype(int))[::-1]  # longest first
    limits = {"max_tokens": _MAX_BATCH_TOKENS, "max_sentences": cell["batch"]}
    batches = batch_by_size(np.arange(len(lengths)), lengths.__getitem__, **limits)
    return [(len(batch), int(lengths[batch[0]])) for batch in batches]
