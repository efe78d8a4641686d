"""Benchmark of translation by fairseq's own beam search or CTranslate2's, with fixed lengths."""

import functools
import tempfile
from argparse import Namespace
from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from fairseq import utils
from fairseq.data.data_utils import batch_by_size
from torch import Tensor, nn
from torch.utils._pytree import tree_leaves

from fairseq_mhe.attention.cache import KeyValueCache
from fairseq_mhe.bench import models
from fairseq_mhe.bench.benchmark import DTYPES, STOCK, Benchmark, Values, combinations
from fairseq_mhe.bench.meters import Seconds, Stopwatch
from fairseq_mhe.bench.models import BF16, INT8, LANGUAGES, translation_batch
from fairseq_mhe.common.arguments import at_least, list_of, positive, positive_list
from fairseq_mhe.common.errors import UserError
from fairseq_mhe.common.system import require
from fairseq_mhe.convert.fold import folded_parameters
from fairseq_mhe.convert.to_ctranslate2 import convert
from fairseq_mhe.prepare.data_folder import DataFolder

#: CTranslate2's variants are named [KIND_]ctranslate2_PRECISION; without KIND the model is stock.
CTRANSLATE2 = "ctranslate2_"
_PRECISIONS = {"cpu": "int8", "cuda": "float16"}
#: Lengths of a news test in subwords: standard deviation of their logarithms, and bounds.
_SPREAD, _BOUNDS = 0.6, (4, 120)
_MAX_BATCH_TOKENS = 4096  # source tokens of a batch with such lengths
_LENGTHS = list_of(at_least(2, 1024))  # fairseq's default number of positions


class GenerationBenchmark(Benchmark):
    """A cell has ``beam``, ``batch``, ``dtype``, and ``length`` of source and output with </s>.

    With --sentences it has their number in place of ``length``: their lengths are as in news.
    """

    title = "translation by fairseq's beam search"
    legend = (
        "Seconds, medians with quartiles; cache and encoder output as at the last step."
    )
    columns: ClassVar = {"s": "total", "sentences/s": "units", "reordering, s": "reorder"}
    columns |= {"cache, MiB": "cache_bytes"}
    columns |= {"encoder output, MiB": "encoder_output_bytes"}
    options: ClassVar = (
        ("--beams", "beam sizes; 1 is greedy search", positive_list, "1,5", "N,..."),
        ("--lengths", "tokens of source and output", _LENGTHS, "25,100,400", "N,..."),
        ("--batch-sizes", "sentences of a batch", positive_list, "1,8,32", "N,..."),
        (
            "--sentences",
            "N sentences with lengths as in news, not --lengths",
            positive,
            None,
            "N",
        ),
    )
    flags: ClassVar = {
        "--int8": "also time kinds with generation_precision int8",
        "--bf16": "also time kinds with generation_precision bf16",
        "--ctranslate2": "also time CTranslate2: stock in int8; on a GPU all in float16",
    }

    @classmethod
    def cells(cls, args: Namespace) -> Iterator[Values]:
        lengths = {"length": args.lengths}
        if args.sentences:
            lengths = {"sentences": [args.sentences]}
        return combinations(
            beam=args.beams, **lengths, batch=args.batch_sizes, dtype=args.dtype
        )

    @classmethod
    def variants(cls, args: Namespace) -> dict[str, type[Benchmark]]:
        variants = super().variants(args)
        in_float32_on_cpu = args.device == "cpu" and args.dtype == ["float32"]
        if (args.int8 or args.bf16) and not in_float32_on_cpu:
            raise UserError("--int8 and --bf16 are for --device cpu and --dtype float32")
        if args.int8:
            variants |= {kind + INT8: cls for kind in args.attention}
        if args.bf16:
            variants |= {kind + BF16: cls for kind in args.attention}
        if args.ctranslate2:
            require("ctranslate2")
            name = CTRANSLATE2 + _PRECISIONS[args.device]
            kinds = args.attention if args.device == "cuda" else ()
            names = [name, *(f"{kind}_{name}" for kind in kinds)]
            variants |= dict.fromkeys(names, CTranslate2Benchmark)
        return variants

    def prepare(self, cell: Values) -> None:
        """Build the model as fairseq-generate does, its beam search and the batches."""
        cfg, task, model = models.build(self.variant, self.settings, cell["dtype"])
        search = cfg.generation
        search.beam = cell["beam"]
        search.max_len_a = 0
        self._task = task
        self._model = model.to(self.settings.device, DTYPES[cell["dtype"]])
        model.prepare_for_inference_(cfg)
        self._generator = task.build_generator([model], search)
        dictionary = task.source_dictionary
        self._batches: list[Any] = []
        self._sentences = 0
        for sentences, length in shapes(cell):
            batch = translation_batch(dictionary, sentences, length, self.settings.seed)
            batch = utils.move_to_cuda(batch) if self.on_gpu else batch
            self._batches.append((length - 1, batch))  # fairseq does not count </s>
            self._sentences += sentences
        self._state_bytes: Values = {}

    def repetition(self) -> Seconds:
        """Translate the batches; ``reorder`` is the time to reorder states as beams change."""
        watch = Stopwatch(self.on_gpu)
        model = self._model
        # The last step extends the state that was reordered last, so this state has all keys.
        state = _spy(model.decoder, "reorder_incremental_state_scripting", watch)
        output = _spy(model.encoder, "reorder_encoder_out", watch)
        for length, batch in self._batches:
            self._generator.min_len = self._generator.max_len_b = length
            with watch.part("total"):
                self._task.inference_step(self._generator, [model], batch)
            for name, last in (("cache_bytes", state), ("encoder_output_bytes", output)):
                largest = self._state_bytes.get(name, 0)
                self._state_bytes[name] = max(storage_bytes(last), largest)
                last.clear()  # otherwise the peak memory of the next repetition would include it
        return watch.seconds()

    def facts(self) -> Values:
        weights = models.weight_bytes(self._model)
        return {"units": self._sentences, "weight_bytes": weights, **self._state_bytes}


class CTranslate2Benchmark(GenerationBenchmark):
    """Translation by CTranslate2, which ignores the cell's dtype."""

    _translator: Any = None

    def prepare(self, cell: Values) -> None:
        """Write sentences as words, without </s>, which CTranslate2 adds itself."""
        if not self._translator:
            self._convert()
        self._beam = cell["beam"]
        self._batches = []
        self._sentences = 0
        dictionary = self._dictionary
        for sentences, length in shapes(cell):
            batch = translation_batch(dictionary, sentences, length, self.settings.seed)
            rows = batch["net_input"]["src_tokens"].tolist()  # (B, S)
            first = dictionary.nspecial
            words = [[dictionary[n] for n in row if n >= first] for row in rows]
            self._batches.append((length, words))
            self._sentences += sentences

    def _convert(self) -> None:
        """Convert the model to CTranslate2; shared heads of one of our kinds stay shared."""
        prefix, _, precision = self.variant.rpartition(CTRANSLATE2)
        kind = prefix.removesuffix("_")
        settings = self.settings
        options = vars(models.configuration(STOCK, settings, "float32").model)
        _, task, model = models.build(kind or STOCK, settings, "float32")
        weights = folded_parameters(model.eval()) if kind else model.state_dict()
        self._dictionary = task.source_dictionary
        with tempfile.TemporaryDirectory() as name:
            dictionaries = Path(name)
            output = dictionaries / "model"
            for language in LANGUAGES:
                self._dictionary.save(str(dictionaries / f"dict.{language}.txt"))
            data = DataFolder(dictionaries, LANGUAGES)
            convert(self.variant, options, weights, data, output, precision, bool(kind))
            import ctranslate2  # `convert` raises UserError if it is not installed

            speed = {"compute_type": precision, "intra_threads": settings.threads}
            self._translator = ctranslate2.Translator(
                str(output), settings.device, **speed
            )
            self._weight_bytes = (output / "model.bin").stat().st_size

    def repetition(self) -> Seconds:
        watch = Stopwatch(self.on_gpu)
        limits = ("min_decoding_length", "max_decoding_length")
        with watch.part("total"):
            for length, sentences in self._batches:
                search = {"beam_size": self._beam, **dict.fromkeys(limits, length)}
                self._translator.translate_batch(sentences, **search)
        return watch.seconds()

    def facts(self) -> Values:
        """Return no peak memory, because torch does not see what CTranslate2 allocates."""
        weights = self._weight_bytes
        return {"units": self._sentences, "weight_bytes": weights, "peak_bytes": None}


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


def storage_bytes(value: Any) -> int:
    """Return the bytes of all tensors in nested dictionaries and lists, shared memory once."""
    leaves = tree_leaves(value)
    # tree_leaves does not look into our caches.
    caches = [vars(leaf) for leaf in leaves if isinstance(leaf, KeyValueCache)]
    leaves += tree_leaves(caches)
    tensors = [leaf for leaf in leaves if isinstance(leaf, Tensor)]
    storages = [tensor.untyped_storage() for tensor in tensors]
    return sum({storage.data_ptr(): storage.nbytes() for storage in storages}.values())


def _spy(owner: nn.Module, name: str, watch: Stopwatch) -> list[Any]:
    """Time a module's reordering method; the list will hold the state that it reordered last."""
    # From the class, because the module has the `timed` of an earlier repetition.
    method = functools.partial(getattr(type(owner), name), owner)
    last: list[Any] = []

    def timed(state: Any, order: Tensor) -> Any:
        last[:] = [state]
        with watch.part("reorder"):
            return method(state, order)

    setattr(owner, name, timed)
    return last
