"""What new shapes of batches cost on a GPU, with cuDNN's attention allowed and not.

    python scripts/gpu_shapes.py          # three minutes on a GPU
    python scripts/gpu_shapes.py --cpu    # a dry run in tiny sizes, without a GPU

cuDNN's attention plans a kernel for each new shape. The first pass over batches that all differ in
shape includes planning, the second pass over the same batches does not. Each row of the table is
printed when it is measured.
"""

import argparse
import os
import random
import statistics
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch

import fairseq_mhe  # noqa: F401 - imports fairseq without its messages

# isort: split
from fairseq.sequence_generator import SequenceGenerator
from fairseq.tasks.translation import TranslationTask
from torch import Tensor, nn
from torch.nn import functional as F

from fairseq_mhe.common.arguments import Parser
from fairseq_mhe.common.errors import UserError, exit_status
from fairseq_mhe.common.quiet import quieten_start_up
from fairseq_mhe.models.architectures import arch_name, sizes
from fairseq_mhe.models.build import build, make_task

PROGRAM = "gpu_shapes.py"
STOCK = "stock"
MODELS = (STOCK, "mha", "mhe_mul")
BEAM, SENTENCES = 5, 32
#: Updates at the start of a pass that are not counted.
WARM_UP = 2
LONGEST = 200
PADDING, FIRST_WORD = 1, 4  # numbers in fairseq's dictionary
COLUMNS = (
    "model",
    "cuDNN",
    "update: mean, median, max of the first pass, ms",
    "of the second",
    "translate, ms",
)


@dataclass(frozen=True)
class Setting:
    """Model, batches and translations of a run."""

    device: str
    dtype: torch.dtype
    row: str
    vocabulary: int
    batches: int
    #: Of a batch, padding included, on the longer side.
    tokens: int
    #: Of a translation, and of its source.
    length: int


GPU = Setting("cuda", torch.bfloat16, "base", 32_000, batches=40, tokens=4096, length=50)
CPU = Setting("cpu", torch.float32, "tiny", 500, batches=4, tokens=64, length=6)


@dataclass(frozen=True)
class Batch:
    """Sentences of random words: sources (B, S), target prefixes (B, T)."""

    source: Tensor
    target: Tensor

    @property
    def source_lengths(self) -> Tensor:
        """(B,)."""
        return torch.full(self.source.shape[:1], self.source.size(1), device=self.source.device)


def new_shapes(count: int, tokens: int) -> list[tuple[int, int, int]]:
    """``count`` different shapes: sentences, source length, target length."""
    generator = random.Random(1)  # noqa: S311 - no secrets
    shapes: dict[tuple[int, int, int], None] = {}
    while len(shapes) < count:
        source = _bounded(generator.lognormvariate(3.2, 0.5))
        target = _bounded(source * generator.uniform(0.9, 1.3))
        shapes[max(1, tokens // max(source, target)), source, target] = None
    return list(shapes)


def _bounded(length: float) -> int:
    return min(LONGEST, max(4, int(length)))


def random_batch(shape: tuple[int, int, int], setting: Setting) -> Batch:
    """A batch whose first source is padded on the left, as fairseq pads sources."""
    sentences, source_length, target_length = shape
    source = _words((sentences, source_length), setting)
    source[0, : source_length // 3] = PADDING
    return Batch(source, _words((sentences, target_length), setting))


def _words(shape: tuple[int, int], setting: Setting) -> Tensor:
    return torch.randint(FIRST_WORD, setting.vocabulary, shape, device=setting.device)


def milliseconds(device: str, action: Callable[..., Any], *arguments: Any) -> float:
    """The time of a call, until the device has done its work."""
    synchronize = torch.cuda.synchronize if device == "cuda" else lambda: None
    synchronize()
    start = time.perf_counter()
    action(*arguments)
    synchronize()
    return 1000 * (time.perf_counter() - start)


def update(model: nn.Module, optimizer: torch.optim.Optimizer, batch: Batch) -> None:
    """Forward, loss, backward and Adam's step."""
    logits, _ = model(batch.source, batch.source_lengths, batch.target)  # (B, T, V)
    scores, words = logits.float().flatten(0, 1), batch.target.flatten()  # (B * T, V), (B * T,)
    F.cross_entropy(scores, words, label_smoothing=0.1).backward()
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)


def update_times(model: nn.Module, batches: Sequence[Batch], device: str) -> list[list[float]]:
    """Milliseconds of an update in each of two passes, on each batch but the first ``WARM_UP``."""
    model.train()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-5, fused=True)
    passes = []
    for _ in range(2):
        times = [milliseconds(device, update, model, optimizer, batch) for batch in batches]
        passes.append(times[WARM_UP:])
    return passes


@torch.no_grad()
def translation_times(model: Any, task: TranslationTask, setting: Setting) -> list[float]:
    """Milliseconds of three calls of beam search; the second has sources of another length."""
    model.eval()
    model.make_generation_fast_(beamable_mm_beam_size=None, need_attn=False)
    limits = {"max_len_a": 0, "max_len_b": setting.length, "min_len": setting.length - 1}
    search = SequenceGenerator([model], task.target_dictionary, beam_size=BEAM, **limits)
    times = []
    for source_length in (setting.length, setting.length + 1, setting.length):
        source = _words((SENTENCES, source_length), setting)
        batch = Batch(source, source)
        sample = {"net_input": {"src_tokens": source, "src_lengths": batch.source_lengths}}
        times.append(milliseconds(setting.device, search.generate, [model], sample))
    return times


def allow_cudnn(allowed: bool) -> None:
    """Let torch choose cuDNN's attention, or not; our models leave the choice to torch here."""
    os.environ["FAIRSEQ_MHE_CUDNN"] = "1"
    torch.backends.cuda.enable_cudnn_sdp(allowed)


def make_model(name: str, task: TranslationTask, setting: Setting) -> nn.Module:
    """fairseq's own Transformer of the row, or ours with a kind of attention."""
    options: dict[str, Any] = {"share_all_embeddings": True}
    if name == STOCK:
        options |= {"arch": "transformer", **sizes(setting.row).options()}
    else:
        options |= {"arch": arch_name(setting.row), "attention": name}
    return build(options, task, seed=1).to(setting.device, setting.dtype)


def measurements(setting: Setting) -> Iterator[tuple[str, ...]]:
    """A row of the table for each model, with cuDNN's attention and then without."""
    task = make_task(setting.vocabulary)
    for allowed in (True, False):
        allow_cudnn(allowed)
        shapes = new_shapes(setting.batches, setting.tokens)
        batches = [random_batch(shape, setting) for shape in shapes]
        for name in MODELS:
            model = make_model(name, task, setting)
            cells = [_summary(times) for times in update_times(model, batches, setting.device)]
            cells.append(translation_times(model, task, setting))
            yield (name, "allowed" if allowed else "off", *map(_text, cells))


def _summary(times: Sequence[float]) -> list[float]:
    return [statistics.mean(times), statistics.median(times), max(times)]


def _text(times: Sequence[float]) -> str:
    return ", ".join(f"{number:.1f}" for number in times)


def run(args: argparse.Namespace) -> None:
    """Print the table."""
    if not args.cpu and not torch.cuda.is_available():
        raise UserError("torch sees no GPU here; for a dry run without a GPU add --cpu")
    if not args.cpu:
        versions = f"torch {torch.__version__} cudnn {torch.backends.cudnn.version()}"
        print(torch.cuda.get_device_name(), versions)
    print(f"| {' | '.join(COLUMNS)} |\n|{'---|' * len(COLUMNS)}")
    for row in measurements(CPU if args.cpu else GPU):
        print(f"| {' | '.join(row)} |", flush=True)


def main(argv: Sequence[str] | None = None) -> int:
    """Parse the options and run."""
    quieten_start_up()
    raw = argparse.RawDescriptionHelpFormatter
    parser = Parser(prog=PROGRAM, description=__doc__, formatter_class=raw)
    parser.add_argument("--cpu", action="store_true", help="a dry run on the CPU, in tiny sizes")
    return exit_status(PROGRAM, lambda: run(parser.parse_args(argv)))


if __name__ == "__main__":
    sys.exit(main())
