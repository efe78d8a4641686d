"""CUDA graphs for training: one call starts all kernels of a forward or a backward pass.

A GPU computes 4,096 tokens faster than the host starts their kernels (docs/gpu.md). A graph fits
one shape, so batches are padded to few shapes. The output layer, the loss and the optimizer run
without graphs.
"""

import weakref
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call
from torch.nn.functional import pad
from torch.utils._pytree import tree_leaves

from fairseq_mhe.attention.masks import padded_on_the_right
from fairseq_mhe.common.errors import UserError
from fairseq_mhe.models.recording import Recordings, Shape, round_up

#: A batch is padded at least to these multiples of sentences and of tokens per sentence.
_SENTENCE_MULTIPLE, _LENGTH_MULTIPLE = 8, 4
#: Options that rule out graphs: fairseq's checkpointing cannot run under torch.autograd.grad; the
#: others start kernels that depend on random draws of the host or on the tokens.
_WITHOUT_GRAPHS = (
    "checkpoint_activations",
    "offload_activations",
    "encoder_layerdrop",
    "decoder_layerdrop",
    "adaptive_input",
    "character_embeddings",
    "base_layers",
)


def option_without_graphs(options: Mapping[str, Any]) -> str | None:
    """Return the first of ``options`` that rules out graphs, or None."""
    return next((name for name in _WITHOUT_GRAPHS if options.get(name)), None)


def check_options(options: Mapping[str, Any]) -> None:
    """Raise ValueError if ``--cuda-graphs`` is set beside an option or a GPU that rules it out."""
    conflict = option_without_graphs(options)
    if conflict and options.get("cuda_graphs"):
        both = f"--cuda-graphs and --{conflict.replace('_', '-')}"
        raise ValueError(f"{both} do not go together: leave one out")
    if torch.distributed.is_available() and torch.distributed.is_initialized():
        _check_gpus(options, torch.distributed.get_world_size())


def check_command_line(options: Mapping[str, Any]) -> None:
    """Raise ValueError, before fairseq starts a process for each GPU, if they would use graphs."""
    _check_gpus(options, options.get("distributed_world_size") or 1)


def _check_gpus(options: Mapping[str, Any], gpus: int) -> None:
    if options.get("cuda_graphs") and gpus > 1 and not options.get("cpu"):
        raise ValueError(
            f"--cuda-graphs is for one GPU, not {gpus}: leave it out, or choose one by "
            "CUDA_VISIBLE_DEVICES=0 or --distributed-world-size 1"
        )


class Graphs(Recordings):
    """Runs `compute_features` of a ``model`` by graphs, from the second batch of a shape on."""

    advice = "leave --cuda-graphs out"

    def __init__(self, model: Any) -> None:
        #: None for a shape that occurred once.
        self.by_shape: dict[Shape, _Graph | None] = {}
        super().__init__(model)
        self.width = model.decoder.output_embed_dim
        dictionary = model.decoder.dictionary
        self.padding = dictionary.pad()
        self.eos = dictionary.eos()
        self._max_lengths = tree_leaves(model.max_positions())  # for S and T, or T
        self._open_pass: Callable[[], _Pass | None] = lambda: None
        self._peak_memory = 0
        self._largest_batch = 0  # in padded tokens
        # Autograd computes the gradient of the first embedding last, when memory has peaked.
        self.parameters[0].register_post_accumulate_grad_hook(self._note_memory)

    def forget(self) -> None:
        """Drop all recordings; the shapes of batches stay known."""
        super().forget()
        self.by_shape = dict.fromkeys(self.by_shape)
        named = self.module.named_parameters()
        self.weights = {name: p for name, p in named if p.requires_grad}
        self.parameters = list(self.weights.values())
        self.gradients: list[Tensor] = []
        self._feature_memory = self.parameters[0].new_empty(2, 0)

    def _note_memory(self, _: Tensor) -> None:
        """Note the peak memory here, because fairseq's Trainer resets torch's in each update."""
        peak = torch.cuda.max_memory_allocated()
        self._peak_memory = max(self._peak_memory, peak)

    def __call__(self, *tokens: Tensor) -> Tensor | None:
        """tokens (B, S), (B, T) -> features (B, T, C); None if this batch must run without a graph:
        it is the first of its shape, the GPU has no memory for another graph, the previous batch
        waits for its backward pass, or the target tokens are not padded on the right.
        """
        graph = self._graph_for(tokens)
        if graph is None:
            return None
        sentences, length = tokens[-1].shape
        for side, buffer in zip(tokens, graph.tokens, strict=True):
            extra = buffer.size(1) - side.size(1)
            buffer[:sentences] = pad(side, (0, extra), value=self.padding)
            buffer[sentences:] = self.eos  # fills the rows that hold no sentence
        for weight, buffer in zip(self.parameters, self.gradients, strict=True):
            # With --update-freq autograd may hold a buffer as a gradient; the graph overwrites it.
            if weight.grad is not None and weight.grad.data_ptr() == buffer.data_ptr():
                weight.grad = weight.grad.clone()
        open_pass = _Pass()
        self._open_pass = weakref.ref(open_pass)
        features = _Replay.apply(graph, open_pass, *self.parameters)
        return features[:sentences, :length]

    def _graph_for(self, tokens: tuple[Tensor, ...]) -> "_Graph | None":
        """Return the graph for tokens (B, S), (B, T), or None as `__call__`; record a new one."""
        shape = self._padded_shape(tokens)
        if shape not in self.by_shape:
            self._make_room(shape)
            self.by_shape[shape] = None
            return None
        if self._open_pass():
            return None
        if self.snapshot.changed():
            self.forget()
        graph = self.by_shape[shape]
        peak = self._peak_memory
        if graph is None and not self.recorder.has_memory(peak, graph=peak):
            return None
        # Checked last, because the host waits for the GPU here.
        if not padded_on_the_right(tokens[-1].eq(self.padding)):
            return None
        if graph is None:
            graph = self.try_to_record(shape, lambda: _Graph(self, shape))
            if graph is not None:
                self.by_shape[shape] = graph
        return graph

    def _make_room(self, shape: Shape) -> None:
        """Drop all graphs if this shape is larger than all before, and may not fit beside them."""
        size = shape[0] * sum(shape[1:])
        if size <= self._largest_batch:
            return
        if self._largest_batch:
            peak = self._peak_memory * size / self._largest_batch
            if self.recorder.pool_bytes and not self.recorder.has_memory(peak):
                self.forget()
                torch.cuda.empty_cache()
        self._largest_batch = size

    def _padded_shape(self, tokens: tuple[Tensor, ...]) -> Shape:
        """Return the shape of the graph for tokens (B, S) and (B, T), or (B, T) alone."""
        shape = [round_up(len(tokens[-1]), _SENTENCE_MULTIPLE)]
        for side, maximum in zip(tokens, self._max_lengths, strict=True):
            shape.append(round_up(side.size(1), _LENGTH_MULTIPLE, maximum))
        return tuple(shape)

    def features(self, sentences: int, length: int) -> Tensor:
        """Return memory (2, B, T, C) for features and gradient; allocate it if it must grow."""
        size = sentences * length * self.width
        if size > self._feature_memory.size(1):
            self._feature_memory = self._feature_memory.new_empty(2, size)
        return self._feature_memory[:, :size].view(2, sentences, length, self.width)


class _Graph:
    """The forward and backward graph of a shape, with the tensors that they read and write."""

    def __init__(self, graphs: Graphs, shape: Shape) -> None:
        sentences, *lengths = shape
        device = graphs.parameters[0].device
        self.tokens = [
            torch.full((sentences, length), graphs.eos, device=device)
            for length in lengths
        ]
        self.features, self.grad_features = graphs.features(sentences, lengths[-1])
        self._computed: Any = None  # features, between the two recordings
        self.model = graphs.module
        # New leaves: those of a batch that waits for its backward pass belong to another stream.
        self.weights = {
            name: nn.Parameter(weight.detach()) for name, weight in graphs.weights.items()
        }
        if not graphs.gradients:
            graphs.gradients = [torch.zeros_like(weight) for weight in graphs.parameters]
        self.gradients: list[Any] = list(graphs.gradients)  # None for unused weights
        self.forward = graphs.recorder.record(self._forward)
        self.backward = graphs.recorder.record(self._backward)

    def _forward(self) -> None:
        self._computed = compute_features(self.model, self.weights, *self.tokens)
        self.features.copy_(self._computed.detach())

    def _backward(self) -> None:
        outputs = self._computed
        self._computed = None  # frees memory for later graphs
        leaves = list(self.weights.values())
        grads = torch.autograd.grad(
            outputs, leaves, self.grad_features, allow_unused=True
        )
        buffers, gradients = [], []
        for index, gradient in enumerate(grads):
            if gradient is None:  # a weight of the output layer, which no graph computes
                self.gradients[index] = None
            else:
                buffers.append(self.gradients[index])
                gradients.append(gradient)
        torch._foreach_copy_(buffers, gradients)


def compute_features(
    model: Any, weights: Mapping[str, Tensor], *tokens: Tensor
) -> Tensor:
    """tokens (B, S) and (B, T), or (B, T) alone -> (B, T, C); (B, T) is padded on the right.

    ``weights`` take the place of the model's parameters of these names.
    """
    named = {f"model.{name}": weight for name, weight in weights.items()}
    # With tie_weights torch does not restore embed_tokens, a module of both sides.
    features: Tensor = functional_call(_Features(model), named, tokens, tie_weights=False)
    return features


class _Features(nn.Module):
    """A ``model`` without its output layer, as a module of its own for `functional_call`."""

    def __init__(self, model: Any) -> None:
        super().__init__()
        self.model = model

    def forward(self, *tokens: Tensor) -> Tensor:
        """(B, S) and (B, T), or (B, T) alone -> (B, T, C); (B, T) is padded on the right."""
        *source, target = tokens
        memory = self.model.encoder(*source) if source else None
        features, _ = self.model.decoder.extract_features(
            target, memory, right_padded=True
        )
        result: Tensor = features
        return result


class _Pass:
    """Exists from forward to backward pass of a batch; meanwhile no other batch may use graphs."""


class _Replay(torch.autograd.Function):
    """Replays a graph: the forward pass gives features (B, T, C), the backward pass gradients."""

    @staticmethod
    def forward(ctx: Any, graph: _Graph, open_pass: _Pass, *weights: Tensor) -> Tensor:
        ctx.graph, ctx.open_pass = graph, open_pass
        graph.forward()
        return graph.features.detach()

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, grad_features: Tensor) -> Any:
        """grad_features (B, T, C) -> the gradients of the weights."""
        if ctx.open_pass is None:  # the first backward pass has overwritten what it read
            raise UserError(
                "--cuda-graphs runs one backward pass of each loss: leave the option out"
            )
        ctx.graph.grad_features.copy_(grad_features)
        ctx.graph.backward()
        ctx.open_pass = None  # ends the pass: `Graphs` holds only a weak reference
        gradients = []
        for buffer in ctx.graph.gradients:
            gradients.append(None if buffer is None else buffer.detach())
        return None, None, *gradients
