"""Translation by fairseq's own beam search, or CTranslate2's; all outputs are as long as forced."""

import itertools
import tempfile
from argparse import ArgumentParser, Namespace
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from fairseq import utils
from torch import Tensor, nn
from torch.utils._pytree import tree_leaves

from fairseq_mhe.attention.cache import KeyValueCache
from fairseq_mhe.bench import models
from fairseq_mhe.bench.benchmark import (
    DTYPES,
    LONGEST,
    STOCK,
    Benchmark,
    Cell,
    Floor,
    lengths,
)
from fairseq_mhe.bench.meters import Stopwatch
from fairseq_mhe.bench.models import BF16, INT8, LANGUAGES, translation_batch
from fairseq_mhe.bench.report import FLOOR, MEMORY, RATIO, duration, mebibytes, number, share
from fairseq_mhe.common.arguments import at_least, positive, positive_list
from fairseq_mhe.common.errors import UserError
from fairseq_mhe.common.system import require
from fairseq_mhe.convert.fold import folded_parameters
from fairseq_mhe.convert.to_ctranslate2 import convert_stock, open_translator
from fairseq_mhe.models.counting import attention_work, cache_bytes, costs, total_parameters

#: Before the precision in the name of a variant that is CTranslate2's: alone the stock model, else
#: after a kind of attention.
CTRANSLATE2 = "ctranslate2_"
_PRECISIONS = {"cpu": "int8", "cuda": "float16"}
#: Lengths of a news test in subwords are log-normal: median, deviation of the logarithm, bounds.
_MEDIAN, _SPREAD, _BOUNDS = 24.0, 0.6, (4, 120)
#: Most source tokens of a batch of sentences of such lengths.
_BATCH_TOKENS = 4096
#: Where a search spends its time, outside of reordering; the sublayers are the decoder's.
PARTS = (
    *("encoder", "self-attention", "cross-attention", "feed-forward"),
    *("output projection", "softmax", "search step"),
)


class GenerationBenchmark(Benchmark):
    """Cells: ``beam``, ``length`` of the outputs, ``source_length``, ``batch``, ``dtype``.

    Lengths count the end of sentence. Minimum and maximum are equal: every sentence takes
    ``length`` steps of the decoder, whatever the random weights say. A cell with ``sentences`` has
    so many of lengths as in news, in batches of falling lengths; its ``length`` is their mean.
    """

    title = "translation by fairseq's beam search"
    legend = (
        "Seconds of one batch, medians with quartiles; "
        "cache and encoder output as held at the last step."
    )
    columns = (
        duration("s", "total"),
        number("sentences/s", "rate", ",.3g"),
        RATIO,
        duration("reordering, s", "reorder"),
        share("share", "reorder"),
        *FLOOR,
        mebibytes("cache, MiB", "cache_bytes"),
        mebibytes("encoder output, MiB", "encoder_output_bytes"),
        *MEMORY,
    )
    parts = (*PARTS, "reorder")

    @classmethod
    def add_options(cls, parser: ArgumentParser) -> None:
        add = parser.add_argument
        text = "hypotheses; 1 is greedy (default: %(default)s)"
        add("--beams", type=positive_list, default="1,5", metavar="N,...", help=text)
        text = "tokens of every output (default: %(default)s)"
        add("--lengths", type=lengths, default="25,100,400", metavar="N,...", help=text)
        text = "tokens of the longest source (default: the output's)"
        add("--source-length", type=at_least(2, LONGEST), metavar="N", help=text)
        text = "sentences (default: %(default)s)"
        add(
            "--batch-sizes", type=positive_list, default="1,8,32", metavar="N,...", help=text
        )
        text = (
            "translate N sentences of lengths as in news, which fall from batch to batch, in "
            f"place of --lengths; a batch has at most {_BATCH_TOKENS:,} tokens"
        )
        add("--sentences", type=positive, metavar="N", help=text)
        text = "also time each of --attention with int8_generation"
        add("--int8", action="store_true", help=text)
        text = "also time each of --attention with generation_precision bf16"
        add("--bf16", action="store_true", help=text)
        text = (
            "also time CTranslate2: with the stock model, on a CPU in int8, on a GPU in float16; "
            "there with each of --attention, too"
        )
        add("--ctranslate2", action="store_true", help=text)

    @classmethod
    def cells(cls, args: Namespace) -> Iterator[Cell]:
        """By dtype, beam, length and batch."""
        means, several = args.lengths, {}
        if args.sentences:
            means = [round(float(np.mean(_news_lengths(args.sentences))))]
            several = {"sentences": args.sentences}
        for dtype, beam, length, batch in itertools.product(
            args.dtype, args.beams, means, args.batch_sizes
        ):
            source = length if several else args.source_length or length
            sizes = {"beam": beam, "length": length, "source_length": source, "batch": batch}
            yield {**several, **sizes, "dtype": dtype}

    @classmethod
    def variants(cls, args: Namespace) -> dict[str, type[Benchmark]]:
        """Those that all benchmarks have, in 8-bit integers and bf16 too, and CTranslate2."""
        variants = super().variants(args)
        if (args.int8 or args.bf16) and (args.device != "cpu" or args.dtype != ["float32"]):
            raise UserError("--int8 and --bf16 are for --device cpu and --dtype float32")
        for suffix, is_wanted in ((INT8, args.int8), (BF16, args.bf16)):
            if is_wanted:
                variants |= {f"{kind}{suffix}": cls for kind in args.attention}
        if args.ctranslate2:
            require("ctranslate2")
            name = CTRANSLATE2 + _PRECISIONS[args.device]
            kinds = args.attention if args.device == "cuda" else ()
            variants |= dict.fromkeys(
                [name, *(f"{kind}_{name}" for kind in kinds)], CTranslate2Benchmark
            )
        return variants

    @classmethod
    def least_work(cls, model: Any, cell: Cell, facts: Mapping[str, Any]) -> Floor:
        """The encoder's weights once; every step the decoder's, and all that is cached by then."""
        source, length = cell["source_length"], cell["length"]
        batch = cell.get("sentences", cell["batch"])
        rows, past = batch * cell["beam"], (length + 1) / 2
        parts = costs(model, source, past).values()
        adds = sum(
            part.source * source * batch + part.target * length * rows for part in parts
        )
        once = sum(attention_work(layer.encoder_attn).key for layer in model.decoder.layers)
        # The output projection is the embeddings, which is read whole every step.
        embeddings = model.decoder.embed_tokens.weight.numel()
        encoder = total_parameters(model.encoder) - embeddings
        decoder = total_parameters(model.decoder)
        kept = cache_bytes(model, 1)
        cache = batch * kept.per_source_token * source + rows * kept.per_target_token * past
        return adds, encoder + once + length * (decoder - once + cache)

    def prepare(self, cell: Cell) -> None:
        """The model as fairseq-generate makes it ready, its search, and the batch."""
        cfg = models.configuration(self.variant, self.settings, cell["dtype"])
        limits = cfg.generation
        limits.beam, limits.max_len_a = cell["beam"], 0
        self._task, model = models.build(cfg, self.settings.vocabulary)
        self._model = model.to(self.device, DTYPES[cell["dtype"]])
        self._model.prepare_for_inference_(cfg)
        self._generator = self._task.build_generator([self._model], limits)
        words, seed = self._task.source_dictionary, self.settings.seed
        self._batches: list[tuple[int, Any]] = []
        for sentences, source, length in shapes(cell):
            batch = translation_batch(words, sentences, source, seed)
            batch = utils.move_to_cuda(batch) if self.device.type == "cuda" else batch
            self._batches.append((length - 1, batch))  # without the end of sentence
        self._held: dict[str, int] = {}

    def repetition(self) -> dict[str, float]:
        """Seconds: ``total``, of it ``reorder`` (following the hypotheses); on a CPU ``PARTS``."""
        watch, model = Stopwatch(self.device), self._model
        # fairseq gives to nobody else what the search holds when it reorders.
        state: dict[str, Any] = {}
        output: dict[str, Any] = {}
        _spy(model.decoder, "reorder_incremental_state_scripting", "reorder", watch, state)
        _spy(model.encoder, "reorder_encoder_out", "reorder", watch, output)
        if self.device.type == "cpu":  # where looking at the clock is free
            for owner, method, part in _parts(model, self._generator):
                _spy(owner, method, part, watch)
        for length, batch in self._batches:
            self._generator.min_len = self._generator.max_len_b = length
            with watch.part("total"):
                self._task.inference_step(self._generator, [model], batch)
            # fairseq fills the state in place, so that it has the last step's keys and values. It
            # is not kept, else the next repetition's peak would count it.
            for name, held in (
                ("cache_bytes", state["argument"]),
                ("encoder_output_bytes", output["result"]),
            ):
                self._held[name] = max(storage_bytes(held), self._held.get(name, 0))
            del held
            state.clear()
            output.clear()
        return watch.seconds()

    def facts(self) -> dict[str, Any]:
        """Sentences, and bytes of the weights and of what was held at the last step."""
        weights = models.weight_bytes(self._model)
        sentences = sum(len(batch["id"]) for _, batch in self._batches)
        return {"units": sentences, "weight_bytes": weights, **self._held}


class CTranslate2Benchmark(GenerationBenchmark):
    """The same by CTranslate2; the dtype makes no difference."""

    def __init__(self, variant: str, settings: Namespace) -> None:
        super().__init__(variant, settings)
        self._translator: Any = None

    def prepare(self, cell: Cell) -> None:
        """The sentences as words, without the end of sentence, which CTranslate2 adds itself."""
        if not self._translator:
            self._convert()
        self._beam = cell["beam"]
        self._batches = []
        for sentences, source, length in shapes(cell):
            batch = translation_batch(self._words, sentences, source, self.settings.seed)
            rows = batch["net_input"]["src_tokens"].tolist()  # (B, S)
            words = [
                [self._words[n] for n in row if n >= self._words.nspecial] for row in rows
            ]
            self._batches.append((length, words))

    def _convert(self) -> None:
        """Write a model as fairseq does, and let CTranslate2's converter read it.

        A kind's shared heads are kept once.
        """
        kind, _, precision = self.variant.rpartition(CTRANSLATE2)
        settings = self.settings
        options = vars(models.configuration(STOCK, settings, "float32").model)
        cfg = models.configuration(kind.removesuffix("_") or STOCK, settings, "float32")
        task, model = models.build(cfg, settings.vocabulary)
        parameters = folded_parameters(model.eval()) if kind else model.state_dict()
        self._words = task.source_dictionary
        with tempfile.TemporaryDirectory() as name:
            place = Path(name)
            for language in LANGUAGES:
                self._words.save(str(place / f"dict.{language}.txt"))
            folder = place / "model"
            convert_stock(
                options, parameters, place, LANGUAGES, folder, precision, bool(kind)
            )
            self._translator = open_translator(
                folder, settings.device, precision, settings.threads
            )
            self._weight_bytes = (folder / "model.bin").stat().st_size

    def repetition(self) -> dict[str, float]:
        """Seconds of the search."""
        watch = Stopwatch(self.device)
        limits = ("min_decoding_length", "max_decoding_length")
        with watch.part("total"):
            for length, sentences in self._batches:
                search = {"beam_size": self._beam, **dict.fromkeys(limits, length)}
                self._translator.translate_batch(sentences, **search)
        return watch.seconds()

    def facts(self) -> dict[str, Any]:
        """Sentences, and bytes of the weights."""
        units = sum(len(sentences) for _, sentences in self._batches)
        return {"units": units, "weight_bytes": self._weight_bytes}


def shapes(cell: Cell) -> list[tuple[int, int, int]]:
    """Sentences, longest source and length of the outputs of each batch of a cell."""
    if "sentences" not in cell:
        return [(cell["batch"], cell["source_length"], cell["length"])]
    left, batches = _news_lengths(cell["sentences"]), []
    while left:
        longest = left[0]
        size = min(cell["batch"], len(left), max(1, _BATCH_TOKENS // longest))
        batches.append((size, longest, longest))
        left = left[size:]
    return batches


def _news_lengths(sentences: int) -> list[int]:
    """Lengths as of a news test, the longest first; always the same."""
    drawn = np.random.default_rng(1).standard_normal(sentences)
    lengths = np.clip(_MEDIAN * np.exp(_SPREAD * drawn), *_BOUNDS)
    return sorted(lengths.astype(int).tolist(), reverse=True)


def storage_bytes(value: Any) -> int:
    """Bytes behind all tensors in nested dictionaries and lists; what several share counts once."""
    caches = [vars(leaf) for leaf in tree_leaves(value) if isinstance(leaf, KeyValueCache)]
    tensors = [leaf for leaf in tree_leaves([value, caches]) if isinstance(leaf, Tensor)]
    storages = [tensor.untyped_storage() for tensor in tensors]
    return sum({storage.data_ptr(): storage.nbytes() for storage in storages}.values())


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
    last: dict[str, Any] | None = None,
) -> None:
    """Replace a method of one module by itself, timed as ``part``.

    ``last`` takes the last call's first ``argument`` and ``result``.
    """
    method = getattr(type(owner), name).__get__(owner)

    def timed(*args: Any, **kwargs: Any) -> Any:
        with watch.part(part):
            result = method(*args, **kwargs)
        if last is not None:
            last.update(argument=args[0], result=result)
        return result

    setattr(owner, name, timed)
