"""Translation by fairseq's own beam search, or CTranslate2's; all outputs are as long as forced."""

import itertools
import tempfile
from argparse import Namespace
from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from fairseq import utils
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

#: Before the precision in the name of a variant that is CTranslate2's: alone the stock model, else
#: after a kind of attention.
CTRANSLATE2 = "ctranslate2_"
_PRECISIONS = {"cpu": "int8", "cuda": "float16"}
#: Deviation of the logarithm and bounds of the lengths of a news test, in subwords.
_SPREAD, _BOUNDS = 0.6, (4, 120)
#: Most source tokens of a batch of sentences of such lengths.
_BATCH_TOKENS = 4096
_LENGTHS = list_of(at_least(2, 1024))  # fairseq's most positions


class GenerationBenchmark(Benchmark):
    """Cells: ``beam``, ``batch``, ``dtype``, and ``length`` of sources and outputs, ends included.

    Or ``sentences``: how many, with lengths as in news, in batches of falling lengths.
    """

    title = "translation by fairseq's beam search"
    legend = (
        "Seconds, medians with quartiles; cache and encoder output as at the last step."
    )
    columns: ClassVar = {"s": "total", "sentences/s": "units", "reordering, s": "reorder"}
    columns |= {
        "cache, MiB": "cache_bytes",
        "encoder output, MiB": "encoder_output_bytes",
    }

    options: ClassVar = (
        ("--beams", "hypotheses; 1 is greedy", positive_list, "1,5", "N,..."),
        (
            "--lengths",
            "tokens of every source and output",
            _LENGTHS,
            "25,100,400",
            "N,...",
        ),
        ("--batch-sizes", "sentences", positive_list, "1,8,32", "N,..."),
        (
            "--sentences",
            "N sentences with lengths as in news, not --lengths",
            positive,
            None,
            "N",
        ),
    )
    flags: ClassVar = {
        "--int8": "also time kinds with int8_generation",
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
        is_possible = args.device == "cpu" and args.dtype == ["float32"]
        if (args.int8 or args.bf16) and not is_possible:
            raise UserError("--int8 and --bf16 are for --device cpu and --dtype float32")
        suffixes = [INT8] * args.int8 + [BF16] * args.bf16
        for suffix, kind in itertools.product(suffixes, args.attention):
            variants[kind + suffix] = cls
        if args.ctranslate2:
            require("ctranslate2")
            name = CTRANSLATE2 + _PRECISIONS[args.device]
            kinds = args.attention if args.device == "cuda" else ()
            names = [name, *(f"{kind}_{name}" for kind in kinds)]
            variants |= dict.fromkeys(names, CTranslate2Benchmark)
        return variants

    def prepare(self, cell: Values) -> None:
        """The model as fairseq-generate makes it ready, its search, and the batch."""
        cfg, task, model = models.build(self.variant, self.settings, cell["dtype"])
        limits = cfg.generation
        limits.beam = cell["beam"]
        limits.max_len_a = 0
        self._task = task
        self._model = model.to(self.settings.device, DTYPES[cell["dtype"]])
        model.prepare_for_inference_(cfg)
        self._generator = task.build_generator([model], limits)
        words = task.source_dictionary
        seed = self.settings.seed
        self._batches: list[Any] = []
        self._sentences = 0
        for sentences, length in shapes(cell):
            batch = translation_batch(words, sentences, length, seed)
            batch = utils.move_to_cuda(batch) if self.on_gpu else batch
            self._batches.append((length - 1, batch))  # without the end of sentence
            self._sentences += sentences
        self._held: Values = {}

    def repetition(self) -> Seconds:
        """Seconds: ``total``, of it ``reorder`` (following the hypotheses)."""
        watch = Stopwatch(self.on_gpu)
        model = self._model
        # The search fills the decoder's state in place: the last argument has all keys and values.
        state = _spy(model.decoder, "reorder_incremental_state_scripting", watch)
        output = _spy(model.encoder, "reorder_encoder_out", watch)
        for length, batch in self._batches:
            self._generator.min_len = self._generator.max_len_b = length
            with watch.part("total"):
                self._task.inference_step(self._generator, [model], batch)
            for name, last in (("cache_bytes", state), ("encoder_output_bytes", output)):
                self._held[name] = max(storage_bytes(last), self._held.get(name, 0))
                last.clear()  # else the next repetition's peak would count it
        return watch.seconds()

    def facts(self) -> Values:
        weights = models.weight_bytes(self._model)
        return {"units": self._sentences, "weight_bytes": weights, **self._held}


class CTranslate2Benchmark(GenerationBenchmark):
    """The same by CTranslate2; the dtype makes no difference."""

    _translator: Any = None

    def prepare(self, cell: Values) -> None:
        """The sentences as words, without the end of sentence, which CTranslate2 adds itself."""
        if not self._translator:
            self._convert()
        self._beam = cell["beam"]
        self._batches = []
        self._sentences = 0
        dictionary = self._words
        seed = self.settings.seed
        for sentences, length in shapes(cell):
            batch = translation_batch(dictionary, sentences, length, seed)
            rows = batch["net_input"]["src_tokens"].tolist()  # (B, S)
            first = dictionary.nspecial
            words = [[dictionary[n] for n in row if n >= first] for row in rows]
            self._batches.append((length, words))
            self._sentences += sentences

    def _convert(self) -> None:
        """Let CTranslate2's converter read a model, whose shared heads it keeps once."""
        kind, _, precision = self.variant.rpartition(CTRANSLATE2)
        settings = self.settings
        options = vars(models.configuration(STOCK, settings, "float32").model)
        ours = kind.removesuffix("_")
        _, task, model = models.build(ours or STOCK, settings, "float32")
        weights = folded_parameters(model.eval()) if kind else model.state_dict()
        self._words = task.source_dictionary
        with tempfile.TemporaryDirectory() as name:
            dictionaries = Path(name)
            folder = dictionaries / "model"
            for language in LANGUAGES:
                self._words.save(str(dictionaries / f"dict.{language}.txt"))
            how = (folder, precision, bool(kind))
            convert(self.variant, options, weights, dictionaries, LANGUAGES, *how)
            import ctranslate2  # installed: `convert` needs it, too

            speed = {"compute_type": precision, "intra_threads": settings.threads}
            self._translator = ctranslate2.Translator(
                str(folder), settings.device, **speed
            )
            self._weight_bytes = (folder / "model.bin").stat().st_size

    def repetition(self) -> Seconds:
        watch = Stopwatch(self.on_gpu)
        limits = ("min_decoding_length", "max_decoding_length")
        with watch.part("total"):
            for length, sentences in self._batches:
                search = {"beam_size": self._beam, **dict.fromkeys(limits, length)}
                self._translator.translate_batch(sentences, **search)
        return watch.seconds()

    def facts(self) -> Values:
        """Sentences, and bytes of the weights; torch does not see the others."""
        weights = self._weight_bytes
        return {"units": self._sentences, "weight_bytes": weights, "peak_bytes": None}


def shapes(cell: Values) -> list[tuple[int, int]]:
    """Sentences and tokens of the longest of each batch of a cell."""
    if "sentences" not in cell:
        return [(cell["batch"], cell["length"])]
    random = np.random.default_rng(1)  # always the same
    news = models.random_lengths(random, cell["sentences"], _SPREAD)
    drawn = np.clip(news, *_BOUNDS).astype(int)
    lengths = sorted(drawn.tolist(), reverse=True)
    batches = []
    while lengths:
        size = min(cell["batch"], len(lengths), max(1, _BATCH_TOKENS // lengths[0]))
        batches.append((size, lengths[0]))
        del lengths[:size]
    return batches


def storage_bytes(value: Any) -> int:
    """Bytes behind all tensors in nested dictionaries and lists; what several share counts once."""
    leaves = tree_leaves(value)
    caches = [vars(leaf) for leaf in leaves if isinstance(leaf, KeyValueCache)]
    leaves += tree_leaves(caches)
    tensors = [leaf for leaf in leaves if isinstance(leaf, Tensor)]
    storages = [tensor.untyped_storage() for tensor in tensors]
    return sum({storage.data_ptr(): storage.nbytes() for storage in storages}.values())


def _spy(owner: nn.Module, name: str, watch: Stopwatch) -> list[Any]:
    """Time a reordering method of one module; the list takes what its last call reordered."""
    method = getattr(type(owner), name).__get__(owner)
    last: list[Any] = []

    def timed(argument: Any, order: Tensor) -> Any:
        last[:] = [argument]
        with watch.part("reorder"):
            return method(argument, order)

    setattr(owner, name, timed)
    return last
