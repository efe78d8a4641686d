"""fairseq's losses over words, quicker in bf16 on CPUs: ``--criterion NAME_by_rows``.

Some rows at a time, which stay in the processor's cache, become loss and gradient at once: float32
probabilities (N, V) are never whole in memory. The gradient takes the place of the logits.
"""

# No annotations from __future__: fairseq reads the options' types at run time.
from typing import Any

import torch
from fairseq.criterions import FairseqCriterion, register_criterion
from fairseq.criterions import cross_entropy as causal
from fairseq.criterions import label_smoothed_cross_entropy as smoothed
from fairseq.criterions.masked_lm import MaskedLmConfig, MaskedLmLoss
from torch import Tensor

#: Values in work at a time: few enough for a core's cache, many enough that calls are few.
_VALUES = 2**19


def criterion_for(precision: str, name: str = "label_smoothed_cross_entropy") -> str:
    """The criterion that trains our models in float32, bf16 or fp16: fairseq's if as quick."""
    return f"{name}_by_rows" if precision == "bf16" else name


def _by_rows(values: Tensor, model: Any) -> bool:
    """Whether a loss of such values (logits or weights) of a model is quicker by rows."""
    decoder = getattr(model, "decoder", None)
    plain = getattr(decoder, "adaptive_softmax", None) is None
    return plain and values.dtype == torch.bfloat16 and not values.is_cuda


class _SmoothedLoss(torch.autograd.Function):
    """Sums over the real rows of the loss with label smoothing, and of that without.

    Szegedy et al. 2016, section 7: (1 - e - s) nll + s * the sum of all words' nll; fairseq's
    s = e / (V - 1).
    """

    @staticmethod
    def forward(
        ctx: Any,
        logits: Tensor,
        target: Tensor,
        epsilon: float,
        padding: int,
        replace: bool,
    ) -> tuple[Tensor, Tensor]:
        """logits (N, V), over which the gradient may be written, target (N,) -> two in float32."""
        words = logits.size(1)
        share = epsilon / (words - 1)
        gradient = None  # (N, V)
        if ctx.needs_input_grad[0]:
            # Detached, not .data: torch refuses another gradient that needs the logits.
            gradient = logits.detach() if replace else torch.empty_like(logits)
        nll = logits.new_zeros((), dtype=torch.float32)
        every = torch.zeros_like(nll)
        size = max(1, _VALUES // words)
        for start in range(0, logits.size(0), size):
            rows = slice(start, start + size)
            wanted = target[rows, None]  # (R, 1)
            padded = wanted == padding
            scores = logits[rows].float()  # (R, V)
            probable = scores.softmax(-1)  # (R, V)
            # -log p from sums: the exponentials, most of a row's time, are taken once.
            likeliest = probable.amax(1, keepdim=True).log()
            greatest = scores.amax(1, keepdim=True)
            total = greatest - likeliest  # log sum exp, (R, 1)
            # Masked, not multiplied by 0: an impossible word's logit is -inf.
            losses = total - scores.gather(1, wanted)  # (R, 1)
            nll += losses.masked_fill_(padded, 0).sum()
            if epsilon:
                others = words * total - scores.sum(1, keepdim=True)
                every += others.masked_fill_(padded, 0).sum()
            if gradient is not None:
                # Of a row: p - s everywhere, less (1 - e - s) at the wanted word.
                slope = probable.sub_(share)
                less = torch.full_like(slope[:, :1], epsilon + share - 1)
                slope.scatter_add_(1, wanted, less)
                gradient[rows] = slope.masked_fill_(padded, 0)
        ctx.save_for_backward(gradient)
        ctx.mark_non_differentiable(nll)
        return (1 - epsilon - share) * nll + share * every, nll

    @staticmethod
    def backward(ctx: Any, *outer: Tensor) -> Any:
        """Of the first sum, (N, V)."""
        (gradient,) = ctx.saved_tensors
        if outer[0] != 1:
            gradient = gradient * outer[0]
        return gradient, None, None, None, None


class _ByRows(FairseqCriterion):
    """fairseq's loss, which a CPU computes by rows in bfloat16, unless rows cannot give it."""

    eps = 0.0
    ignore_prefix_size = 0
    report_accuracy = False

    def compute_loss(
        self, model: Any, net_output: Any, sample: Any, reduce: bool = True
    ) -> tuple[Tensor, Tensor]:
        """From logits (B, T, V), first in ``net_output``: two sums over all tokens."""
        logits = net_output[0]
        if not reduce or self.ignore_prefix_size or not _by_rows(logits, model):
            return super().compute_loss(model, net_output, sample, reduce)
        target = model.get_targets(sample, net_output)  # (B, T)
        replace = not self.report_accuracy  # which reads the logits again
        rows = logits.flatten(0, -2), target.flatten()
        return _SmoothedLoss.apply(*rows, self.eps, self.padding_idx, replace)


_Config = smoothed.LabelSmoothedCrossEntropyCriterionConfig


@register_criterion("label_smoothed_cross_entropy_by_rows", dataclass=_Config)
class LabelSmoothedCrossEntropyByRows(
    _ByRows, smoothed.LabelSmoothedCrossEntropyCriterion
):
    """For translation."""


@register_criterion("cross_entropy_by_rows", dataclass=causal.CrossEntropyCriterionConfig)
class CrossEntropyByRows(_ByRows, causal.CrossEntropyCriterion):
    """For causal language models."""


@register_criterion("masked_lm_by_rows", dataclass=MaskedLmConfig)
class MaskedLmByRows(MaskedLmLoss):
    """fairseq's, by rows in bfloat16 on a CPU."""

    def forward(
        self, model: Any, sample: Any, reduce: bool = True
    ) -> tuple[Tensor, Tensor, dict[str, Any]]:
        """The sum over masked tokens, their number, and what is logged."""
        masked = sample["target"].ne(self.padding_idx)  # (B, T)
        if not _by_rows(next(model.parameters()), model):
            return super().forward(model, sample, reduce)
        logits, _ = model(**sample["net_input"], masked_tokens=masked)  # (N, V)
        target = model.get_targets(sample, [logits])[masked]  # (N,)
        loss, nll = _SmoothedLoss.apply(logits, target, 0.0, self.padding_idx, True)
        count = masked.int().sum()
        logged = {
            "loss": nll,
            "ntokens": sample["ntokens"],
            "nsentences": sample["nsentences"],
            "sample_size": count,
        }
        return loss, count, logged
