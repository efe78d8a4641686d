"""CUDA graphs of training: the kernels of a batch start at once, not one after another.

The host takes longer to start an update's kernels than a GPU to compute 4,096 tokens
(docs/gpu.md). A graph holds only for the shapes and memory that it was recorded with: so batches
are padded to few shapes, and all graphs read and write the same few tensors.
"""

import math
import sys
import weakref
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import pad
from torch.utils._pytree import tree_leaves

from fairseq_mhe.attention.kernel import CausalMask

#: Numbers of sentences and of tokens are rounded up to these multiples at least.
_SENTENCES, _TOKENS = 8, 4

#: Options by which each batch starts other kernels.
_CHANGING = (
    *("checkpoint_activations", "offload_activations", "encoder_layerdrop"),
    *("decoder_layerdrop", "adaptive_input", "character_embeddings", "base_layers"),
)

Work = Callable[[], None]


def changing(options: Mapping[str, Any]) -> str | None:
    """The option of a model, if any, that no graph fits."""
    return next((name for name in _CHANGING if options.get(name)), None)


def rounded(size: int, multiple: int, most: int = sys.maxsize) -> int:
    """A multiple, or one of an eighth of the next power of two if that is more; cut at ``most``."""
    step = max(multiple, 2 ** (size - 1).bit_length() // 8)
    padded = math.ceil(size / step) * step
    return max(size, min(padded, most))


def recorder() -> Callable[[Work], Work]:
    """What records the kernels that a function starts, and returns a function that starts them."""
    pool = torch.cuda.graph_pool_handle()  # graphs run one by one, in the same memory

    def record(work: Work) -> Work:
        graph = torch.cuda.CUDAGraph()
        # Threads that load data may go on.
        with torch.cuda.graph(graph, pool, capture_error_mode="thread_local"):
            work()
        return graph.replay

    return record


def has_room(most: int) -> bool:
    """Whether the GPU has twice the memory that batches took at ``most``: graphs keep as much."""
    free, _ = torch.cuda.mem_get_info()
    return free + torch.cuda.memory_reserved() > 2 * most


class Graphs:
    """A model's features, by a graph for each shape of batch that comes a second time.

    ``compute``: tokens (B, S) and (B, T), or (B, T) alone -> features (B, T, C); ``record``: as of
    `recorder`. Rows that are no sentences are ends of sentences.
    """

    def __init__(
        self, model: Any, compute: Callable[..., Tensor], record: Callable[[Work], Work]
    ) -> None:
        self.compute, self.record = compute, record
        self.width = model.decoder.output_embed_dim
        dictionary = model.decoder.dictionary
        self.padding, self.end = dictionary.pad(), dictionary.eos()
        self._longest = tree_leaves(model.max_positions())
        trained = (weight for weight in model.parameters() if weight.requires_grad)
        self.parameters = list(trained)
        self.gradients = [torch.zeros_like(weight) for weight in self.parameters]
        self._features = self.parameters[0].new_empty(2, 0)
        self._of_shape: dict[tuple[int, ...], _Graph | None] = {}
        self._open: Callable[[], _Pass | None] = lambda: None
        self._most_memory = 0
        # An embedding's, the last gradient of a backward pass.
        self.parameters[0].register_post_accumulate_grad_hook(self._note_memory)

    def _note_memory(self, _: Tensor) -> None:
        """fairseq's Trainer lets torch forget the peak after each update."""
        taken = torch.cuda.max_memory_allocated()
        self._most_memory = max(self._most_memory, taken)

    def __call__(self, *tokens: Tensor) -> Tensor | None:
        """tokens (B, S), (B, T) -> (B, T, C); None where no graph fits: the first time of a shape,
        without room for more, before the backward pass of the last batch, or where the last tokens
        are not padded on the right.
        """
        sentences, length = tokens[-1].shape
        shape: tuple[int, ...] = (rounded(sentences, _SENTENCES),)
        for each, most in zip(tokens, self._longest, strict=True):
            shape += (rounded(each.size(1), _TOKENS, most),)
        if shape not in self._of_shape:
            self._of_shape[shape] = None
            return None
        graph = self._of_shape[shape]
        if self._open() or (graph is None and not has_room(self._most_memory)):
            return None
        # Last, since the GPU is asked.
        if not CausalMask(length).hides_padding(tokens[-1].eq(self.padding)):
            return None
        if graph is None:
            graph = self._of_shape[shape] = _Graph(self, shape)
        for each, buffer in zip(tokens, graph.tokens, strict=True):
            more = buffer.size(1) - each.size(1)
            buffer[:sentences] = pad(each, (0, more), value=self.padding)
            buffer[sentences:] = self.end
        for weight, buffer in zip(self.parameters, self.gradients, strict=True):
            # Of an earlier batch of the update (--update-freq): the graph writes there again.
            if weight.grad is not None and weight.grad.data_ptr() == buffer.data_ptr():
                weight.grad = weight.grad.clone()
        forward = _Pass()
        self._open = weakref.ref(forward)
        features = _Replay.apply(graph, forward, *self.parameters)
        return features[:sentences, :length]

    def features(self, sentences: int, length: int) -> Tensor:
        """Memory (2, B, T, C) for features and their gradient, the same for all shapes."""
        size = sentences * length * self.width
        if size > self._features.size(1):
            self._features = self._features.new_empty(2, size)
        return self._features[:, :size].view(2, sentences, length, self.width)


class _Graph:
    """The two passes for a shape: ``forward`` reads ``tokens`` and writes ``features``,
    ``backward`` reads ``slope`` and writes ``gradients``.
    """

    def __init__(self, graphs: Graphs, shape: tuple[int, ...]) -> None:
        sentences, *lengths = shape
        device = graphs.parameters[0].device
        self.tokens = [
            torch.full((sentences, length), graphs.end, device=device)
            for length in lengths
        ]
        self.features, self.slope = graphs.features(sentences, lengths[-1])
        self._computed: Any = None  # features, from the forward to the backward pass
        self.compute, self.weights = graphs.compute, graphs.parameters
        self.gradients: list[Any] = list(graphs.gradients)  # None where there is none
        self.forward = graphs.record(self._forward)
        self.backward = graphs.record(self._backward)

    def _forward(self) -> None:
        self._computed = self.compute(*self.tokens)
        self.features.copy_(self._computed.detach())

    def _backward(self) -> None:
        outputs, self._computed = self._computed, None  # the next graph takes its memory
        found = torch.autograd.grad(outputs, self.weights, self.slope, allow_unused=True)
        buffers, gradients = [], []
        for number, gradient in enumerate(found):
            if gradient is None:  # of the weights of the output layer
                self.gradients[number] = None
            else:
                buffers.append(self.gradients[number])
                gradients.append(gradient)
        torch._foreach_copy_(buffers, gradients)


class _Pass:
    """A forward pass, as long as its backward pass is to come: nobody may take its memory."""


class _Replay(torch.autograd.Function):
    """Features (B, T, C) by a graph, and the gradients of parameters."""

    @staticmethod
    def forward(ctx: Any, graph: _Graph, forward: _Pass, *parameters: Tensor) -> Tensor:
        ctx.graph, ctx.open = graph, forward
        graph.forward()
        return graph.features.detach()

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, slope: Tensor) -> Any:
        """slope (B, T, C): of the features."""
        ctx.graph.slope.copy_(slope)
        ctx.graph.backward()
        ctx.open = None
        gradients = []
        for buffer in ctx.graph.gradients:
            gradients.append(None if buffer is None else buffer.detach())
        return None, None, *gradients
