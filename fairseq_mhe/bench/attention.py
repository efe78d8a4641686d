"""One attention sublayer, called with exactly what the model around it gives it."""

from __future__ import annotations

import argparse
import contextlib
import itertools
import math
from collections.abc import Iterator, Mapping
from typing import Any

import torch
from torch import Tensor, nn

from fairseq_mhe.bench import models
from fairseq_mhe.bench.benchmark import DTYPES, Benchmark, Cell, Floor, check_lengths
from fairseq_mhe.bench.columns import FLOOR, MEMORY, RATIO, duration
from fairseq_mhe.bench.meters import Stopwatch, attention_kernel
from fairseq_mhe.bench.sentences import parallel_batch
from fairseq_mhe.bench.training import BACKWARD_TOO
from fairseq_mhe.common.arguments import positive, positive_list, some_of
from fairseq_mhe.models.counting import attention_work

#: Places measured in training, forward and backward.
TRAINING_PLACES = ("encoder", "decoder", "cross", "cross_last")
#: Places measured in generation, where a sublayer is called once for each token; their sublayers.
STEP_PLACES = {"decoder_steps": "decoder", "cross_steps": "cross"}
PLACES = (*TRAINING_PLACES, *STEP_PLACES)
#: Tokens of a batch unless said otherwise: what a CPU does in seconds, and what keeps a GPU busy.
_TOKENS = {"cpu": 2048, "cuda": 16384}
#: Two decoder layers, because stock fairseq treats the last one in another way.
_LAYERS = ("--encoder-layers", "1", "--decoder-layers", "2")
#: A sublayer never sees the vocabulary.
_VOCABULARY = 64
_INPUTS = ("query", "key", "value")
_MOST_CALLS = 10_000


class AttentionBenchmark(Benchmark):
    """Cells: ``place``, ``length`` of source and target, ``batch`` (sentences), ``dtype``."""

    title = "one attention sublayer, forward and backward, and step by step"
    legend = "Milliseconds of one call (in `_steps`: of one step), medians with quartiles."
    columns = (
        duration("forward, ms", "forward", 1e3),
        duration("backward, ms", "backward", 1e3),
        duration("in all, ms", "total", 1e3),
        RATIO,
        ("kernel", lambda result: result["kernel"]),
        *FLOOR,
        *MEMORY,
    )
    own = ("seconds",)

    @classmethod
    def add_options(cls, parser: argparse.ArgumentParser) -> None:
        """Where, how long, and how often."""
        add = parser.add_argument
        text, every = f"{', '.join(PLACES)}, or all (default: all)", list(PLACES)
        add("--places", type=some_of(PLACES), default=every, metavar="PLACE,...", help=text)
        lengths = [32, 64, 128, 256, 512, 1024]
        text = f"tokens of source and target (default: {','.join(map(str, lengths))})"
        add("--lengths", type=positive_list, default=lengths, metavar="N,...", help=text)
        defaults = " or ".join(f"{tokens} on {device}" for device, tokens in _TOKENS.items())
        text = f"tokens of a batch (default: {defaults})"
        add("--tokens", type=positive, metavar="N", help=text)
        text = "a repetition calls the sublayer again and again for about this long"
        text += " (default: %(default)s)"
        add("--seconds", type=_seconds, default=0.2, metavar="S", help=text)

    @classmethod
    def cells(cls, args: argparse.Namespace) -> Iterator[Cell]:
        """By dtype, place and length; batches have about the same number of tokens."""
        check_lengths(args.lengths)
        tokens = args.tokens or _TOKENS[args.device]
        for dtype, place, length in itertools.product(args.dtype, args.places, args.lengths):
            batch = max(1, tokens // length)
            yield {"place": place, "length": length, "batch": batch, "dtype": dtype}

    @classmethod
    def least_work(cls, model: Any, cell: Cell, facts: Mapping[str, Any], width: int) -> Floor:
        """Of one call, or one step of decoding: the weights, the input and what is kept of it."""
        length, batch = cell["length"], cell["batch"]
        named: str = cell["place"]
        place = STEP_PLACES.get(named, named)
        attention = attention_sublayers(model)[place]
        work, weights = attention_work(attention), sum(p.numel() for p in attention.parameters())
        past = (length + 1) / 2 if place == "decoder" else length
        adds = batch * length * (work.query + work.key + past * work.pair)
        if named not in STEP_PLACES:
            sides = 1 if attention.self_attention else 2
            inputs = sides * attention.embed_dim + attention.cached_values
            return Floor(BACKWARD_TOO * adds, (weights + batch * length * inputs) * width)
        if not attention.self_attention:
            # Read once: what projects a key position is one multiply-add a weight.
            weights -= work.key
        return Floor(adds / length, (weights + batch * past * attention.cached_values) * width)

    def prepare(self, cell: Cell) -> None:
        """Record what the model calls the sublayer with, to call it with the same again."""
        cfg = models.configuration(self.variant, self.settings, cell["dtype"], _LAYERS)
        task, model = models.build(cfg, _VOCABULARY)
        model = model.to(self.device, DTYPES[cell["dtype"]])
        words, seed = task.source_dictionary, self.settings.seed
        batch = parallel_batch(words, cell["batch"], cell["length"], seed)["net_input"]
        batch = {name: tensor.to(self.device) for name, tensor in batch.items()}
        place: str = cell["place"]
        self._steps = place in STEP_PLACES
        self._layer = attention_sublayers(model)[STEP_PLACES.get(place, place)]
        with _recorded_calls(self._layer) as calls, torch.no_grad():
            if self._steps:
                model.prepare_for_inference_(cfg)
                _decode(model, batch)
            else:
                model.train()(**batch)
        self._calls = calls if self._steps else [_as_leaves(calls[0])]
        self._weights = list(self._layer.parameters())
        # The output is as large as the query.
        self._gradient = torch.randn_like(self._calls[0]["query"])  # (T, B, C)
        self._times = 0

    def repetition(self) -> dict[str, float]:
        """Seconds of one call or step: ``total`` and, in training, ``forward`` and ``backward``."""
        if not self._times:
            self._measure(1)
            once = sum(self._measure(1).values())
            wanted = math.ceil(self.settings.own["seconds"] / once)
            self._times = max(1, min(_MOST_CALLS, wanted))
        calls = self._times * len(self._calls)
        parts = {part: spent / calls for part, spent in self._measure(self._times).items()}
        return {"total": sum(parts.values()), **parts}

    def facts(self) -> dict[str, Any]:
        """The kernel that ran, and the weights' bytes."""
        state: dict[str, Any] = {"incremental_state": {}} if self._steps else {}
        kernel = attention_kernel(lambda: self._layer(**self._calls[0], **state))
        return {"kernel": kernel, "weight_bytes": models.weight_bytes(self._layer)}

    def _measure(self, times: int) -> dict[str, float]:
        watch = Stopwatch(self.device)
        for _ in range(times):
            self._generate(watch) if self._steps else self._train(watch)
        return watch.seconds()

    def _train(self, watch: Stopwatch) -> None:
        inputs = self._calls[0]
        with watch.part("forward"):
            output = self._layer(**inputs)[0]  # (T, B, C)
        leaves = {id(inputs[name]): inputs[name] for name in _INPUTS}.values()
        wanted = [*leaves, *self._weights]
        with watch.part("backward"):
            torch.autograd.grad(output, wanted, self._gradient, allow_unused=True)

    @torch.no_grad()
    def _generate(self, watch: Stopwatch) -> None:
        state: dict[str, Any] = {}
        with watch.part("steps"):
            for inputs in self._calls:
                self._layer(**inputs, incremental_state=state)


def _seconds(text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = 0.0
    if not 0 < seconds < float("inf"):
        raise argparse.ArgumentTypeError(f"{text!r} is no positive number of seconds")
    return seconds


def attention_sublayers(model: Any) -> dict[str, Any]:
    """The sublayers that are measured, by place."""
    last = model.decoder.layers[-1]
    return {
        "encoder": model.encoder.layers[0].self_attn,
        "decoder": last.self_attn,
        "cross": model.decoder.layers[0].encoder_attn,
        "cross_last": last.encoder_attn,
    }


@contextlib.contextmanager
def _recorded_calls(layer: nn.Module) -> Iterator[list[dict[str, Any]]]:
    """The keyword arguments of every call of ``layer`` in the block, without its state."""
    calls: list[dict[str, Any]] = []

    def record(_: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        if args:
            raise TypeError("fairseq's layers call attention with keywords only")
        calls.append({name: value for name, value in kwargs.items() if name != "incremental_state"})

    handle = layer.register_forward_pre_hook(record, with_kwargs=True)
    try:
        yield calls
    finally:
        handle.remove()


def _as_leaves(call: dict[str, Any]) -> dict[str, Any]:
    """The call with inputs that want a gradient; inputs that were one tensor stay one."""
    leaves = {id(call[name]): call[name].detach().requires_grad_() for name in _INPUTS}
    return {**call, **{name: leaves[id(call[name])] for name in _INPUTS}}


def _decode(model: Any, batch: dict[str, Tensor]) -> None:
    """Every step of decoding a target that is given."""
    memory = model.encoder.forward_torchscript(batch)
    target = batch["prev_output_tokens"]  # (B, T)
    # Hypotheses are never padded; the first sentence is the longest.
    target = target[:1].expand_as(target)
    state: dict[str, Any] = {}
    for step in range(target.size(1)):
        model.decoder(target[:, : step + 1], encoder_out=memory, incremental_state=state)
