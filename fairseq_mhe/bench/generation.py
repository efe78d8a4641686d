"""Translation by fairseq's own beam search, or CTranslate2's; all outputs are as long as forced."""

import argparse
import itertools
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from fairseq import utils
from torch import Tensor, nn

from fairseq_mhe.attention import KINDS
from fairseq_mhe.attention.cache import KeyValueCache
from fairseq_mhe.bench import models
from fairseq_mhe.bench.benchmark import (
    BF16,
    DTYPES,
    INT8,
    STOCK,
    Benchmark,
    Cell,
    Floor,
    Settings,
    check_lengths,
)
from fairseq_mhe.bench.columns import FLOOR, MEMORY, RATIO, duration, mebibytes, number, share
from fairseq_mhe.bench.meters import Stopwatch
from fairseq_mhe.bench.models import LANGUAGES
from fairseq_mhe.bench.sentences import translation_batch
from fairseq_mhe.common.arguments import positive, positive_list
from fairseq_mhe.common.errors import UserError
from fairseq_mhe.common.system import require
from fairseq_mhe.convert.fold import folded_parameters
from fairseq_mhe.convert.to_ctranslate2 import convert_stock, open_translator
from fairseq_mhe.models.counting import attention_work, cache_bytes, costs, total_parameters

#: The variant that is CTranslate2 with the stock model.
CTRANSLATE2 = "ctranslate2_int8"
#: Where a search spends its time, outside of reordering; the sublayers are the decoder's.
PARTS = (
    *("encoder", "self-attention", "cross-attention", "feed-forward"),
    *("output projection", "softmax", "search step"),
)


class GenerationBenchmark(Benchmark):
    """Cells: ``beam``, ``length`` of the outputs, ``source_length``, ``batch``, ``dtype``.

    Lengths count the end of sentence. Minimum and maximum are equal: every sentence takes
    ``length`` steps of the decoder, whatever the random weights say.
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
    _ready_for: tuple[int, str] | None = None

    @classmethod
    def add_options(cls, parser: argparse.ArgumentParser) -> None:
        add = parser.add_argument
        text = "hypotheses; 1 is greedy (default: %(default)s)"
        add("--beams", type=positive_list, default="1,5", metavar="N,...", help=text)
        text = "tokens of every output (default: %(default)s)"
        add("--lengths", type=positive_list, default="25,100,400", metavar="N,...", help=text)
        text = "tokens of the longest source (default: the output's)"
        add("--source-length", type=positive, metavar="N", help=text)
        text = "sentences (default: %(default)s)"
        add("--batch-sizes", type=positive_list, default="1,8,32", metavar="N,...", help=text)
        text = "also time each of --attention with int8_generation"
        add("--int8", action="store_true", help=text)
        text = "also time each of --attention with generation_precision bf16"
        add("--bf16", action="store_true", help=text)
        text = "also time CTranslate2 with the stock model in int8"
        add("--ctranslate2", action="store_true", help=text)

    @classmethod
    def cells(cls, args: argparse.Namespace) -> Iterator[Cell]:
        """By dtype, beam, length and batch."""
        check_lengths([*args.lengths, *filter(None, [args.source_length])])
        for dtype, beam, length, batch in itertools.product(
            args.dtype, args.beams, args.lengths, args.batch_sizes
        ):
            source = args.source_length or length
            sizes = {"beam": beam, "length": length, "source_length": source, "batch": batch}
            yield {**sizes, "dtype": dtype}

    @classmethod
    def variants(cls, args: argparse.Namespace) -> dict[str, type[Benchmark]]:
        """Those that all benchmarks have, in 8-bit integers and bf16 too, and CTranslate2."""
        variants = super().variants(args)
        if (args.int8 or args.bf16) and (args.device != "cpu" or args.dtype != ["float32"]):
            raise UserError("--int8 and --bf16 are for --device cpu and --dtype float32")
        for suffix, is_wanted in ((INT8, args.int8), (BF16, args.bf16)):
            if is_wanted:
                variants |= {f"{kind}{suffix}": cls for kind in args.attention}
        if args.ctranslate2:
            require("ctranslate2")
            variants[CTRANSLATE2] = CTranslate2Benchmark
        return variants

    @classmethod
    def least_work(cls, model: Any, cell: Cell, facts: Mapping[str, Any], width: int) -> Floor:
        """The encoder's weights once; every step the decoder's, and all that is cached by then."""
        source, length, batch = cell["source_length"], cell["length"], cell["batch"]
        rows, past = batch * cell["beam"], (length + 1) / 2
        parts = costs(model, source, past).values()
        adds = sum(part.source * source * batch + part.target * length * rows for part in parts)
        once = sum(attention_work(layer.encoder_attn).key for layer in model.decoder.layers)
        # The output projection is the embeddings, which is read whole every step.
        embeddings = model.decoder.embed_tokens.weight.numel()
        encoder = total_parameters(model.encoder) - embeddings
        decoder = total_parameters(model.decoder)
        kept = cache_bytes(model, 1)
        cache = batch * kept.per_source_token * source + rows * kept.per_target_token * past
        return Floor(adds, (encoder + once + length * (decoder - once + cache)) * width)

    def prepare(self, cell: Cell) -> None:
        """The model as fairseq-generate makes it ready, its search, and the batch."""
        wanted = cell["beam"], cell["dtype"]
        if self._ready_for != wanted:  # fairseq readies a model for one beam, once
            self._make(*wanted)
            self._ready_for = wanted
        limits = self._cfg.generation  # which leave out the end of sentence
        limits.min_len = limits.max_len_b = cell["length"] - 1
        self._generator = self._task.build_generator([self._model], limits)
        words, seed = self._task.source_dictionary, self.settings.seed
        batch = translation_batch(words, cell["batch"], cell["source_length"], seed)
        self._batch = utils.move_to_cuda(batch) if self.device.type == "cuda" else batch
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
        with watch.part("total"):
            self._task.inference_step(self._generator, [model], self._batch)
        # fairseq fills the state in place, so that it has the last step's keys and values. It is
        # not kept, else the next repetition's peak would count it.
        self._held = {
            "cache_bytes": storage_bytes(state.pop("argument")),
            "encoder_output_bytes": storage_bytes(output.pop("result")),
        }
        state.clear()
        output.clear()
        return watch.seconds()

    def facts(self) -> dict[str, Any]:
        """Sentences, and bytes of the weights and of what was held at the last step."""
        weights = models.weight_bytes(self._model)
        return {"units": len(self._batch["id"]), "weight_bytes": weights, **self._held}

    def _make(self, beam: int, dtype: str) -> None:
        self._cfg = models.configuration(self.variant, self.settings, dtype)
        self._cfg.generation.beam, self._cfg.generation.max_len_a = beam, 0
        self._task, model = models.build(self._cfg, self.settings.vocabulary)
        self._model = model.to(self.device, DTYPES[dtype])
        self._model.prepare_for_inference_(self._cfg)


class CTranslate2Benchmark(GenerationBenchmark):
    """The same by CTranslate2; the dtype makes no difference."""

    def __init__(self, variant: str, settings: Settings, precision: str = "int8") -> None:
        """Write a model as fairseq does, and let CTranslate2's converter read it.

        ``variant``: a kind of attention, whose shared heads are kept once, or else the stock model.
        """
        super().__init__(variant, settings)
        stock = models.configuration(STOCK, settings, "float32")
        is_ours = variant in KINDS
        cfg = models.configuration(variant, settings, "float32") if is_ours else stock
        self._task, model = models.build(cfg, settings.vocabulary)
        parameters = folded_parameters(model.eval()) if is_ours else model.state_dict()
        with tempfile.TemporaryDirectory() as name:
            place, options = Path(name), vars(stock.model)
            for language in LANGUAGES:
                self._task.source_dictionary.save(str(place / f"dict.{language}.txt"))
            folder = place / "model"
            convert_stock(options, parameters, place, LANGUAGES, folder, precision, is_ours)
            self._translator = open_translator(
                folder, settings.device, precision, settings.threads
            )
            self._weight_bytes = (folder / "model.bin").stat().st_size

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
            self._translator.translate_batch(self._sentences, beam_size=self._beam, **limits)
        return watch.seconds()

    def facts(self) -> dict[str, Any]:
        """Sentences, and bytes of the weights."""
        return {"units": len(self._sentences), "weight_bytes": self._weight_bytes}


def storage_bytes(value: Any) -> int:
    """Bytes behind all tensors in nested dictionaries and lists; what several share counts once."""
    storages = [tensor.untyped_storage() for tensor in _tensors(value)]
    return sum({storage.data_ptr(): storage.nbytes() for storage in storages}.values())


def _tensors(value: Any) -> Iterator[Tensor]:
    if isinstance(value, KeyValueCache):
        value = vars(value)
    if isinstance(value, Tensor):
        yield value
    elif isinstance(value, (dict, list, tuple)):
        for item in value.values() if isinstance(value, dict) else value:
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
    owner: nn.Module, name: str, part: str, watch: Stopwatch, last: dict[str, Any] | None = None
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
