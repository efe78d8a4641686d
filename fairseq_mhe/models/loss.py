"""fairseq's losses over words, faster in bf16 on a CPU: ``--criterion NAME_by_rows``.

The loss and its gradient are computed for a few rows at a time, which fit in the processor's cache.
Memory never holds all float32 probabilities (N, V), and the gradient overwrites the logits.
"""

from typing import Any

import torch
from fairseq.criterions import FairseqCriterion, register_criterion
from fairseq.criterions import cross_entropy as causal
from fairseq.criterions import label_smoothed_cross_entropy as smoothed
from fairseq.criterions.masked_lm import MaskedLmConfig, MaskedLmLoss
from torch import Tensor

#: Few enough logits for a core's cache, and many enough to need few calls.
_LOGITS_AT_ONCE = 2**19


def criterion_for(precision: str, name: str = "label_smoothed_cross_entropy") -> str:
    """Return the --criterion for a precision: ours where it is faster than fairseq's (bf16)."""
    return f"{name}_by_rows" if precision == "bf16" else name


def _is_faster_by_rows(values: Tensor, model: Any) -> bool:
    """Return whether ``values`` (logits or weights) are bf16 on a CPU, and the softmax is plain."""
    decoder = getattr(model, "decoder", None)
    plain = getattr(decoder, "adaptive_softmax", None) is None
    return plain and values.dtype == torch.bfloat16 and not values.is_cuda


class _SmoothedLoss(torch.autograd.Function):
    """Computes `smoothed_loss`.

    Szegedy et al. 2016, section 7: (1 - e - s) * nll + s * (sum of the nll of all words), with
    fairseq's s = e / (V - 1); e is ``epsilon``.
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
        """(N, V), (N,) -> two float32 sums."""
        vocab = logits.size(1)
        share = epsilon / (vocab - 1)
        gradient = None  # (N, V)
        if ctx.needs_input_grad[0]:
            # detach(), unlike .data, lets torch raise an error if another gradient needs logits.
            gradient = logits.detach() if replace else torch.empty_like(logits)
        nll = logits.new_zeros((), dtype=torch.float32)
        all_words_nll = torch.zeros_like(nll)
        count = max(1, _LOGITS_AT_ONCE // vocab)
        for start in range(0, logits.size(0), count):
            rows = slice(start, start + count)
            label = target[rows, None]  # (R, 1)
            is_padding = label == padding
            scores = logits[rows].float()  # (R, V)
            probs = scores.softmax(-1)  # (R, V)
            # The greatest probability gives log sum exp without computing exponentials again.
            log_max_prob = probs.amax(1, keepdim=True).log()
            max_score = scores.amax(1, keepdim=True)
            log_sum_exp = max_score - log_max_prob  # (R, 1)
            # Masked, not multiplied by 0: the logit of an impossible word is -inf.
            losses = log_sum_exp - scores.gather(1, label)  # (R, 1)
            nll += losses.masked_fill_(is_padding, 0).sum()
            if epsilon:
                row_sums = vocab * log_sum_exp - scores.sum(1, keepdim=True)  # (R, 1)
                all_words_nll += row_sums.masked_fill_(is_padding, 0).sum()
            if gradient is not None:
                # A row's gradient: p - s, and at the label p - s - (1 - e - s).
                grad = probs.sub_(share)
                at_label = torch.full_like(grad[:, :1], epsilon + share - 1)
                grad.scatter_add_(1, label, at_label)
                # Each number is finite here. masked_fill_ takes as long as the softmax does.
                gradient[rows] = grad.mul_(~is_padding)
        ctx.save_for_backward(gradient)
        ctx.mark_non_differentiable(nll)
        return (1 - epsilon - share) * nll + share * all_words_nll, nll

    @staticmethod
    def backward(ctx: Any, *grad_outputs: Tensor) -> Any:
        """Return the gradient (N, V) of the loss with label smoothing."""
        (gradient,) = ctx.saved_tensors
        if grad_outputs[0] != 1:
            gradient = gradient * grad_outputs[0]
        return gradient, None, None, None, None


def smoothed_loss(
    logits: Tensor, target: Tensor, *, epsilon: float, padding: int, replace: bool
) -> tuple[Tensor, Tensor]:
    """Return the losses with and without label smoothing, each summed over targets.

    Args:
        logits: (N, V).
        target: (N,), with ``padding`` where a row does not count.
        epsilon: the share of label smoothing.
        replace: the gradient overwrites the logits.
    """
    return _SmoothedLoss.apply(logits, target, epsilon, padding, replace)


class _ByRows(FairseqCriterion):
    """Computes fairseq's loss by rows if that is faster and the options allow it."""

    eps = 0.0
    ignore_prefix_size = 0
    report_accuracy = False

    def compute_loss(
        self, model: Any, net_output: Any, sample: Any, reduce: bool = True
    ) -> tuple[Tensor, Tensor]:
        """Return loss and nll summed over tokens; ``net_output`` begins with logits (B, T, V)."""
        logits = net_output[0]
        if not reduce or self.ignore_prefix_size or not _is_faster_by_rows(logits, model):
            return super().compute_loss(model, net_output, sample, reduce)
        target = model.get_targets(sample, net_output)  # (B, T)
        replace = not self.report_accuracy  # accuracy needs the logits later
        return smoothed_loss(
            logits.flatten(0, -2),  # (N, V)
            target.flatten(),  # (N,)
            epsilon=self.eps,
            padding=self.padding_idx,
            replace=replace,
        )


_Config = smoothed.LabelSmoothedCrossEntropyCriterionConfig


@register_criterion("label_smoothed_cross_entropy_by_rows", dataclass=_Config)
class LabelSmoothedCrossEntropyByRows(
    _ByRows, smoothed.LabelSmoothedCrossEntropyCriterion
):
    """Cross entropy with label smoothing, for translation."""


@register_criterion("cross_entropy_by_rows", dataclass=causal.CrossEntropyCriterionConfig)
class CrossEntropyByRows(_ByRows, causal.CrossEntropyCriterion):
    """Cross entropy, for causal language models."""


@register_criterion("masked_lm_by_rows", dataclass=MaskedLmConfig)
class MaskedLmByRows(MaskedLmLoss):
    """Cross entropy of masked tokens, for RoBERTa."""

    def forward(
        self, model: Any, sample: Any, reduce: bool = True
    ) -> tuple[Tensor, Tensor, dict[str, Any]]:
        """Return the loss summed over masked tokens, their number, and the values to log."""
        masked = sample["target"].ne(self.padding_idx)  # (B, T)
        if not _is_faster_by_rows(next(model.parameters()), model):
            return super().forward(model, sample, reduce)
        logits, _ = model(**sample["net_input"], masked_tokens=masked)  # (N, V)
        target = model.get_targets(sample, [logits])[masked]  # (N,)
        loss, nll = smoothed_loss(
            logits, target, epsilon=0.0, padding=self.padding_idx, replace=True
        )
        count = masked.int().sum()
        logged = {
            "loss": nll,
            "ntokens": sample["ntokens"],
            "nsentences": sample["nsentences"],
            "sample_size": count,
        }
        return loss, count, logged
