"""What the paper's table on WMT14 English-German takes on GPUs: hours, memory and disk, computed.

Hours are multiply-adds of `fairseq_mhe.models.counting` over what a GPU is said to do in a second,
times a share that is assumed, but never less than it takes to start a model's kernels, which alone
is measured; memory follows the count of activations of Korthikanti et al. 2022 (arXiv 2205.05198,
equation 2, with fused attention). ``python scripts/wmt14_estimate.py`` prints the tables of
docs/wmt14.md.
"""

import argparse
import functools

from torch import nn

from fairseq_mhe.common.arguments import Parser, at_least
from fairseq_mhe.common.tables import align
from fairseq_mhe.experiments.table_run import waves
from fairseq_mhe.models.architectures import ROWS
from fairseq_mhe.models.build import build_on_meta
from fairseq_mhe.models.counting import Cost, costs, total_parameters
from fairseq_mhe.models.options import PLACES
from fairseq_mhe.runs.recipes import RECIPES

KINDS = ("mha", "mhe_mul")
#: GPU -> dense bf16 (V100: fp16) operations a second, as its data sheet says.
GPUS = {"V100": 125e12, "A100": 312e12, "H100": 989e12}
#: Of it, what small models over short sentences get: assumed, not measured.
SHARE = 0.15
#: Seconds that a mini-batch takes where its kernels are started more slowly than they run: measured
#: for 6+6 layers in bf16 on an H200 (results/gpu/training.md).
STARTED = {"mha": 0.174 / 4, "mhe_mul": 0.189 / 4}
_STARTED_LAYERS = 6
LENGTH = 30  # tokens of a sentence, on each side
#: Joined dictionary of 32,000 merges, characters among it.
VOCABULARY = 33_000
_BACKWARD = 3  # forward, and twice as much backward
_STATE_BYTES = 18  # of a parameter: 2 in bf16, 4 in float32, 8 of Adam's moments, 4 of the gradient
_LAYER_BYTES = {"encoder": 34, "decoder": 49}  # of a token and channel; cross-attention is 15
_LOGIT_BYTES = 10  # bf16, float32, and its gradient
_CONTEXT_BYTES = 1e9  # CUDA's own, and what its allocator does not give back
_CHECKPOINT_BYTES = 12
_DATA_BYTES = 10e9  # docs/data.md


@functools.cache
def _model(row: str, kind: str) -> nn.Module:
    return build_on_meta(row, kind, VOCABULARY)


def hours(row: str, kind: str, operations: float) -> float:
    """Of one training on one GPU that does so many operations a second."""
    training, layers = RECIPES[row].training, ROWS[row].layers
    found = costs(_model(row, kind), LENGTH, LENGTH)
    work = sum((found[part] for part in (*PLACES, "rest")), Cost())
    tokens = training.updates * training.batch_tokens
    computing = 2 * _BACKWARD * tokens * (work.source + work.target) / operations
    starting = tokens / training.max_tokens * STARTED[kind] * layers / _STARTED_LAYERS
    return max(computing, starting) / 3600


def memory(row: str, kind: str) -> float:
    """Bytes on a GPU of one mini-batch of the recipe."""
    size, training = ROWS[row], RECIPES[row].training
    parameters = total_parameters(_model(row, kind))
    layers = size.layers * sum(_LAYER_BYTES.values())
    per_token = layers * size.embed_dim + _LOGIT_BYTES * VOCABULARY
    return _STATE_BYTES * parameters + training.max_tokens * per_token + _CONTEXT_BYTES


def disk(row: str, kind: str) -> float:
    """Bytes of the checkpoints of a training: those that are kept, the last, the best, the mean."""
    kept = RECIPES[row].training.average + 1 + 3
    return kept * _CHECKPOINT_BYTES * total_parameters(_model(row, kind))


def whole(rows: list[list[float]], gpus: int) -> float:
    """Hours of training until all rows are done, one model a GPU, as run-table trains them: a wave
    of rows after the other.
    """
    hours = 0.0
    for wave in waves(rows, gpus):
        busy = [0.0] * gpus
        for job in wave:
            busy[busy.index(min(busy))] += job
        hours += max(busy)
    return hours


def estimate(gpus: int, share: float) -> str:
    """The tables, as Markdown."""
    rows, room = [], _DATA_BYTES
    times: dict[str, list[list[float]]] = {gpu: [] for gpu in GPUS}
    for row in ROWS:
        for of_row in times.values():
            of_row.append([])
        for kind in KINDS:
            for gpu, operations in GPUS.items():
                times[gpu][-1].append(hours(row, kind, share * operations))
            room += disk(row, kind)
            cells = [f"{times[gpu][-1][-1]:,.0f}" for gpu in GPUS]
            sizes = [f"{memory(row, kind) / 1e9:.1f}", f"{disk(row, kind) / 1e9:.1f}"]
            rows.append([row, kind, *cells, *sizes])
    titles = ["row", "attention", *(f"hours on one {gpu}" for gpu in GPUS)]
    table = align([*titles, "GB on the GPU", "GB of checkpoints"], rows)
    total = [f"{sum(map(sum, times[gpu])):,.0f}" for gpu in GPUS]
    together = [f"{whole(times[gpu], gpus):,.0f}" for gpu in GPUS]
    sums = [
        ["hours of one GPU, in all", *total],
        [f"hours on {gpus} GPUs, one model each", *together],
    ]
    assumed = f"{share:.0%} of the data sheet's operations, sentences of {LENGTH} tokens"
    parts = [table, align(["the whole table", *GPUS], sums)]
    parts.append(f"Disk for all: {room / 1e9:,.0f} GB. Computed, not measured; assumed: {assumed}.")
    return "\n\n".join(parts)


def _share(text: str) -> float:
    try:
        share = float(text)
    except ValueError:
        share = 0.0
    if not 0.001 <= share <= 1:
        raise argparse.ArgumentTypeError(f"{text!r} is no share of at least 0.001 and at most 1")
    return share


def main() -> None:
    """Print the estimate."""
    parser = Parser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--gpus", type=at_least(1, 10_000), default=8, metavar="N", help="(default: 8)"
    )
    told = "of the data sheet's operations (default: %(default)s)"
    parser.add_argument("--share", type=_share, default=SHARE, metavar="X", help=told)
    args = parser.parse_args()
    print(estimate(args.gpus, args.share))


if __name__ == "__main__":
    main()
