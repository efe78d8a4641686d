"""``--criterion label_smoothed_cross_entropy_by_rows``: fairseq's loss, quicker in bf16 on CPUs.

The same loss, whose float32 probabilities (N, V) are never whole in memory: some rows at a time,
which stay in the processor's cache, become loss and gradient at once.
"""

# No annotations from __future__: fairseq reads the options' types at run time.
from typing import Any

import torch
from fairseq.criterions import register_criterion
from fairseq.criterions.label_smoothed_cross_entropy import (
    LabelSmoothedCrossEntropyCriterion,
    LabelSmoothedCrossEntropyCriterionConfig,
)
from torch import Tensor

#: Values that are in work at a time, in float32 about what a core's cache holds.
_VALUES = 2**18


def criterion_for(precision: str) -> str:
    """The name of the criterion that trains our models in float32, bf16 or fp16.

    fairseq's own where ours is no quicker: a training's checkpoints are of one or the other.
    """
    return f"label_smoothed_cross_entropy{'_by_rows' if precision == 'bf16' else ''}"


class _SmoothedLoss(torch.autograd.Function):
    """Sums over the real rows of the loss with label smoothing, and of that without.

    Szegedy et al. 2016, section 7, with fairseq's share of the others: (1 - e - s) nll + s * sum
    over all words of their nll, s = e / (V - 1).
    """

    @staticmethod
    def forward(
        ctx: Any, logits: Tensor, target: Tensor, epsilon: float, padding: int
    ) -> tuple[Tensor, Tensor]:
        """logits (N, V), target (N,) -> two numbers in float32."""
        words = logits.size(1)
        share = epsilon / (words - 1)
        gradient = torch.empty_like(logits) if ctx.needs_input_grad[0] else None  # (N, V)
        nll = logits.new_zeros((), dtype=torch.float32)
        every = torch.zeros_like(nll)
        size = max(1, _VALUES // words)
        for start in range(0, logits.size(0), size):
            rows = slice(start, start + size)
            wanted = target[rows, None]  # (R, 1)
            real = wanted != padding
            scores = logits[rows].float()  # (R, V)
            probable = scores.softmax(-1)  # (R, V)
            # -log p from sums: the exponentials, most of a row's time, are taken once.
            likeliest = probable.amax(1, keepdim=True).log()
            total = scores.amax(1, keepdim=True) - likeliest  # log sum exp, (R, 1)
            nll += ((total - scores.gather(1, wanted)) * real).sum()
            every += ((words * total - scores.sum(1, keepdim=True)) * real).sum()
            if gradient is not None:
                # Of a row: p - s everywhere, less (1 - e - s) at the wanted word.
                slope = probable.sub_(share)
                slope.scatter_add_(1, wanted, torch.full_like(slope[:, :1], epsilon + share - 1))
                gradient[rows] = slope.mul_(real)
        ctx.save_for_backward(gradient)
        ctx.mark_non_differentiable(nll)
        return (1 - epsilon - share) * nll + share * every, nll

    @staticmethod
    def backward(ctx: Any, *outer: Tensor) -> tuple[Tensor, None, None, None]:
        """The gradient of the first sum, (N, V)."""
        (gradient,) = ctx.saved_tensors
        return gradient if outer[0] == 1 else gradient * outer[0], None, None, None


@register_criterion(
    "label_smoothed_cross_entropy_by_rows", dataclass=LabelSmoothedCrossEntropyCriterionConfig
)
class LabelSmoothedCrossEntropyByRows(LabelSmoothedCrossEntropyCriterion):
    """fairseq's, whatever is asked of it; by rows in bfloat16 on a CPU."""

    def compute_loss(
        self, model: Any, net_output: Any, sample: Any, reduce: bool = True
    ) -> tuple[Tensor, Tensor]:
        """Called by fairseq: logits (B, T, V) first in ``net_output``; two sums over all tokens."""
        logits = net_output[0]
        by_rows = logits.dtype == torch.bfloat16 and not logits.is_cuda and reduce
        adaptive = getattr(model.decoder, "adaptive_softmax", None) is not None
        if not by_rows or adaptive or self.ignore_prefix_size:
            return super().compute_loss(model, net_output, sample, reduce)
        target = model.get_targets(sample, net_output).reshape(-1)  # (B * T,)
        return _SmoothedLoss.apply(
            logits.reshape(-1, logits.size(-1)), target, self.eps, self.padding_idx
        )
