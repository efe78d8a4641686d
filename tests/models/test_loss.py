"""The losses by rows and their gradients equal fairseq's; elsewhere fairseq's code runs."""

from types import SimpleNamespace
from typing import Any

import pytest
import torch
from fairseq.criterions import CRITERION_REGISTRY
from fairseq.criterions.label_smoothed_cross_entropy import LabelSmoothedCrossEntropyCriterion
from torch import Tensor

from fairseq_mhe.models import loss
from fairseq_mhe.models.loss import LabelSmoothedCrossEntropyByRows, criterion_for
from tests.fixtures.language import LM, ROBERTA, make_language_model, sentences

Batch = tuple[Tensor, Tensor]
PADDING = 1
TASK = SimpleNamespace(target_dictionary=SimpleNamespace(pad=lambda: PADDING))
BOTH = (LabelSmoothedCrossEntropyByRows, LabelSmoothedCrossEntropyCriterion)


class Model:
    """A stand-in for a model, with a given output."""

    decoder = SimpleNamespace(adaptive_softmax=None)

    def __init__(self, *output: Any) -> None:
        self.output = output

    def __call__(self) -> Any:
        return self.output

    def get_normalized_probs(self, net_output: Any, log_probs: bool) -> Tensor:
        return net_output[0].float().log_softmax(-1)

    def get_targets(self, sample: Any, net_output: Any) -> Tensor:
        return sample["target"]


def losses(criterion: Any, logits: Tensor, target: Tensor, **more: Any) -> list[Tensor]:
    """Loss, loss without smoothing, and the gradient of three times the first."""
    leaf = logits.clone().requires_grad_()
    instance = criterion(TASK, sentence_avg=False, label_smoothing=0.1, **more)
    sample, in_validation = {"target": target}, torch.no_grad()(instance.compute_loss)
    _, plain = in_validation(Model(), (logits, None), sample)
    smoothed, _ = instance.compute_loss(Model(), (leaf, None), sample)
    (3 * smoothed).backward()
    return [smoothed.detach(), plain.detach(), leaf.grad]


@pytest.fixture
def batch() -> Batch:
    """Logits (B, T, V) in bfloat16 and targets (B, T), some of them padding."""
    target = torch.randint(2, 5, (5, 7))
    target[2, 4:] = target[4, 1:] = PADDING
    return 4 * torch.randn(5, 7, 5).bfloat16(), target


@pytest.mark.parametrize("values", [1, 100, 2**18])
def test_loss_equals_fairseqs(batch: Batch, values: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loss, "_LOGITS_AT_ONCE", values)
    ours, theirs = (losses(criterion, *batch) for criterion in BOTH)
    torch.testing.assert_close(ours[:2], theirs[:2], rtol=1e-6, atol=0)
    # The gradient is in bfloat16: fairseq rounds it once, our loss twice.
    torch.testing.assert_close(ours[2], theirs[2], rtol=2**-7, atol=1e-6)


def test_a_word_with_probability_zero_has_a_finite_loss() -> None:
    logits = torch.tensor([[[0.0, 0.0, 300.0, -200.0]]]).bfloat16()
    assert losses(LabelSmoothedCrossEntropyByRows, logits, torch.tensor([[3]]))[1] == 500


def test_accuracy_is_fairseqs(batch: Batch) -> None:
    """Without --report-accuracy the gradient overwrites the logits, which saves memory."""
    counts = []
    for criterion in BOTH:
        logits = batch[0].requires_grad_() * 1.0  # a product's, as a model's are
        sample = {"net_input": {}, "target": batch[1], "ntokens": 28}
        _, _, logged = criterion(TASK, False, 0.1, report_accuracy=True)(Model(logits), sample)
        counts.append((logged["n_correct"], logged["total"]))
        criterion(TASK, False, 0.1)(Model(logits), sample)
        overwritten = not torch.equal(logits, batch[0])
        assert overwritten == (criterion is LabelSmoothedCrossEntropyByRows)
    assert counts[0] == counts[1]


def test_in_float32_and_with_an_ignored_prefix_the_loss_is_fairseqs(batch: Batch) -> None:
    logits, target = batch
    for given, more in ((logits.float(), {}), (logits, {"ignore_prefix_size": 2})):
        ours, theirs = (losses(kind, given, target, **more) for kind in BOTH)
        assert all(map(torch.equal, ours, theirs))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
@pytest.mark.parametrize("name", ["masked_lm", "cross_entropy"])
def test_losses_of_language_models_equal_fairseqs(name: str, dtype: torch.dtype) -> None:
    arch, options = LM[0], {"sentence_avg": False}
    if name == "masked_lm":
        arch, options = ROBERTA[0], {"cfg": SimpleNamespace(tpu=False)}
    model, tokens = make_language_model(arch).to(dtype), sentences()
    target = tokens.roll(-1, 1)
    if name == "masked_lm":
        target[torch.arange(tokens.numel()).view_as(tokens) % 3 > 0] = PADDING
    sample = {"net_input": {"src_tokens": tokens}, "target": target}
    sample |= {"ntokens": 7, "nsentences": 5}
    results = []
    for precision in ("float32", "bf16"):
        criterion = CRITERION_REGISTRY[criterion_for(precision, name)]
        assert criterion.__name__.endswith("ByRows") == (precision == "bf16")
        model.zero_grad()
        total, size, logged = criterion(task=TASK, **options)(model, sample)
        total.backward()
        gradients = [p.grad.float() for p in model.parameters() if p.grad is not None]
        results.append((total.detach().float(), size, logged, gradients))
    theirs, ours = results
    torch.testing.assert_close(ours[0], theirs[0], rtol=2e-6, atol=0)
    assert ours[1] == theirs[1]
    assert ours[2].keys() == theirs[2].keys()
    assert float(ours[2]["loss"]) == pytest.approx(float(theirs[2]["loss"]), rel=2e-6)
    # The gradient of logits is rounded to bfloat16 twice by us, once by fairseq.
    near = {"rtol": 2**-6, "atol": 2**-7 * max(g.abs().max().item() for g in theirs[3])}
    exact = {"rtol": 0, "atol": 0}
    torch.testing.assert_close(ours[3], theirs[3], **(exact if dtype == torch.float32 else near))


def test_a_batch_without_a_masked_word_has_a_loss() -> None:
    """In such a batch fairseq projects every word, but no word counts."""
    model, tokens = make_language_model(ROBERTA[0]).bfloat16(), sentences()
    sample = {"net_input": {"src_tokens": tokens}, "target": torch.full_like(tokens, PADDING)}
    criterion = CRITERION_REGISTRY["masked_lm_by_rows"](SimpleNamespace(tpu=False), TASK)
    total, size, _ = criterion(model, {**sample, "ntokens": 7, "nsentences": 5})
    assert (float(total), int(size)) == (0, 0)
