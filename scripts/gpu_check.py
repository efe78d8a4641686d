"""Parity, questions to the device, training and translation on a real GPU, in one table.

Exit status: 0 where all holds, 1 where something does not, 2 where there is no GPU.
"""

import argparse
import json
import subprocess
import sys
import time
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any
from unittest.mock import patch

import torch
from torch import Tensor

from fairseq_mhe.attention import KINDS, Attention, base, build_attention, kernel
from fairseq_mhe.attention.kernel import CausalMask
from fairseq_mhe.bench.benchmark import Settings
from fairseq_mhe.bench.generation import GenerationBenchmark
from fairseq_mhe.bench.meters import attention_kernel
from fairseq_mhe.common.arguments import Parser
from fairseq_mhe.common.errors import UserError, exit_status
from fairseq_mhe.common.files import output_folder, write_text
from fairseq_mhe.common.progress import say
from fairseq_mhe.common.quiet import quieten_start_up
from fairseq_mhe.common.system import machine, software
from fairseq_mhe.common.tables import align

PROGRAM = "gpu_check.py"
#: The greatest difference from float32, relative to the greatest number there: fp16 keeps 11 bits,
#: bf16 8.
TOLERANCES = {
    "float32": (torch.float32, 1e-4),
    "fp16": (torch.float16, 5e-3),
    "bf16": (torch.bfloat16, 3e-2),
}
EMBED_DIM, HEADS, B, T, S = 256, 4, 8, 33, 40
PLACES = ("encoder", "decoder", "cross")
#: Bits a target token of a model that knows nothing: 4,000 words, all as probable.
UNTRAINED = 12.0
#: A search in which hypotheses move: its sentences, beam and steps.
SEARCH: dict[str, Any] = {"batch": 8, "beam": 5, "length": 20, "source_length": 20, "dtype": "fp16"}
#: Code that asks where the models do not.
OURS = Path(base.__file__).parents[1]
#: check, what, found, holds
Row = tuple[str, str, str, str]


def distance(kind: str, place: str, dtype: torch.dtype, device: str) -> float:
    """How far a sublayer on ``device`` in ``dtype`` is from the reference in float32 on the CPU.

    Of output and gradients, the greatest difference beside the greatest number.
    """
    torch.manual_seed(1)
    options = {"self_attention": place != "cross", "encoder_decoder_attention": place == "cross"}
    layer = build_attention(kind, EMBED_DIM, HEADS, **options)
    # Rounded first, so that what is compared is the computing.
    layer.to(dtype).float()
    x = torch.randn(T, B, EMBED_DIM).to(dtype).float()
    y = torch.randn(S, B, EMBED_DIM).to(dtype).float() if place == "cross" else x
    with patch.object(base, "attend", _reference):
        expected = _output_and_gradients(layer, x, y, place)
    layer.to(device, dtype)
    found = _output_and_gradients(layer, x.to(device, dtype), y.to(device, dtype), place)
    return max(_apart(a, b) for a, b in zip(found, expected, strict=True))


def _output_and_gradients(layer: Attention, x: Tensor, y: Tensor, place: str) -> list[Tensor]:
    """The output (T, B, C) where no sentence is padded, and its gradients by input and weights."""
    x = x.detach().requires_grad_()
    memory = y if place == "cross" else x
    keys = len(memory)
    padding = torch.arange(keys) >= (keys - torch.arange(B)).unsqueeze(1)  # (B, S)
    out, _ = layer(
        x,
        memory,
        memory,
        key_padding_mask=padding.to(x.device),
        attn_mask=CausalMask(T, x.device) if place == "decoder" else None,
        need_weights=False,
    )
    if place != "cross":
        out = out * ~padding.to(x.device).t().unsqueeze(-1)
    # The sum: a mean's gradients are too small for fp16, which training gives a loss scale.
    by_input, *by_weights = torch.autograd.grad(
        out.float().square().sum(), [x, *layer.parameters()]
    )
    return [out.detach(), by_input, torch.cat([weight.flatten() for weight in by_weights])]


def _reference(query: Tensor, key: Tensor, value: Tensor, **given: Any) -> tuple[Tensor, Any, Any]:
    """The plain equation, called as ``attend`` is."""
    wanted = {name: given[name] for name in ("scale", "key_padding_mask", "attn_mask")}
    return kernel.attend_reference(query, key, value, **wanted)[0], None, None


def _apart(found: Tensor, expected: Tensor) -> float:
    found = found.float().cpu()
    if not found.isfinite().all():
        return float("inf")
    return float((found - expected).abs().max() / expected.abs().max())


def parity(kind: str, device: str) -> tuple[str, bool]:
    """The three dtypes, the worst of all places, and the kernel of torch's that was there."""
    found, holds = [], True
    for name, (dtype, tolerance) in TOLERANCES.items():
        worst = max(distance(kind, place, dtype, device) for place in PLACES)
        found.append(f"{name} {worst:.0e}")
        holds = holds and worst <= tolerance
    found.append(attention_kernel(lambda: distance(kind, "decoder", torch.bfloat16, device)))
    return ", ".join(found), holds


def questions(kind: str, device: str) -> tuple[str, bool]:
    """How often a step of beam search waits for the GPU's answer."""
    steps = SEARCH["length"]
    small = Settings(row="tiny", device=device, threads=1, vocabulary=1000)
    search = GenerationBenchmark(kind, small)
    search.prepare(SEARCH)
    search.repetition()
    asking = _asking(search)
    ours = [place.name for place in asking if OURS in place.parents]
    places = [f"{name} {count / steps:.2f}" for name, count in Counter(ours).items()]
    rest = f"fairseq {(len(asking) - len(ours)) / steps:.2f}"
    return ", ".join([*places, f"{rest} a step"]), len(ours) <= steps


def every_kind(check: Callable[[str, str], tuple[str, bool]], device: str) -> Iterator[Row]:
    """A row for each kind; an error is told in it."""
    for kind in KINDS:
        try:
            found, holds = check(kind, device)
        except RuntimeError as error:
            found, holds = str(error).partition("\n")[0], False
        yield _row(check.__name__, kind, found, holds)


def _row(check: str, what: str, found: str, holds: bool) -> Row:
    """A row of the table, told at once."""
    row = check, what, found, "yes" if holds else "NO"
    say(": ".join(row))
    return row


def _asking(search: GenerationBenchmark) -> list[Path]:
    """The files whose code waited for the GPU in one search; torch warns of each time."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        torch.cuda.set_sync_debug_mode("warn")
        try:
            search.repetition()
        finally:
            torch.cuda.set_sync_debug_mode("default")
    return [Path(one.filename) for one in caught if "synchronizing" in str(one.message)]


def trainings(device: str) -> dict[str, list[str]]:
    """Options of quickstarts that train and translate a little, by precision."""
    if device == "cpu":
        return {"float32": ["--limit", "200", "--updates", "20", "--cpu"]}
    return {name: ["--limit", "3000", "--updates", "200"] for name in ("bf16", "fp16")}


def trained(precision: str, words: Sequence[str], out: Path) -> list[Row]:
    """Run a quickstart in ``out``, where its log goes too: a row for each model."""
    check, folder = f"training, {precision}", out / precision
    log = out / f"{precision}.log"
    command = [sys.executable, "-P", "-m", "fairseq_mhe.cli", "quickstart", *words]
    command += ["--attention", "mha,mhe_mul", "--precision", precision, "--out", str(folder)]
    with log.open("w", encoding="utf-8") as file:
        status = subprocess.run(command, stdout=file, stderr=subprocess.STDOUT).returncode
    if status:
        return [_row(check, "quickstart", f"exit status {status}: see {log}", False)]
    table = json.loads((folder / "table.json").read_text(encoding="utf-8"))
    losses = {model["attention"]: model["valid_loss"] for model in table}
    return [
        _row(check, kind, f"valid loss {loss:.2f}", loss < UNTRAINED)
        for kind, loss in losses.items()
    ]


def report(rows: Sequence[Row], device: str) -> str:
    """The table, and what it was found with."""
    facts = {"date": time.strftime("%Y-%m-%dT%H:%M:%S%z"), **machine(device), **software()}
    listed = "\n".join(f"- {name}: {value}" for name, value in facts.items())
    table = align(["check", "what", "found", "holds"], rows, left=range(4))
    heading = "# Check on a GPU" if device == "cuda" else "# Check on a GPU: a dry run on the CPU"
    return f"{heading}\n\n{listed}\n\n{table}\n"


def run(args: argparse.Namespace) -> int:
    """Check, print the table and keep it in ``--out``."""
    device = "cpu" if args.cpu else "cuda"
    if not args.cpu and not torch.cuda.is_available():
        raise UserError("torch sees no GPU here; a dry run without one: --cpu")
    out = output_folder(args.out)
    rows = [*every_kind(parity, device)]
    if not args.cpu:
        rows += every_kind(questions, device)
    for precision, words in trainings(device).items():
        rows += trained(precision, words, out)
    text = report(rows, device)
    write_text(out / "gpu_check.md", text)
    print(text, end="")
    return int(any(row[-1] != "yes" for row in rows))


def main(argv: Sequence[str] | None = None) -> int:
    """All of it."""
    quieten_start_up()
    parser = Parser(prog=PROGRAM, description=__doc__)
    add = parser.add_argument
    add("--out", type=Path, default=Path("runs/gpu"), help="folder (default: %(default)s)")
    add("--cpu", action="store_true", help="a dry run on the CPU, in tiny sizes: a minute")
    return exit_status(PROGRAM, lambda: run(parser.parse_args(argv)))


if __name__ == "__main__":
    sys.exit(main())
