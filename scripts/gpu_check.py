"""Parity, training, generation and speed on a real GPU, in about ten minutes and one table.

Exit status: 0 where all holds, 1 where something does not, 2 where there is no GPU.
"""

import argparse
import json
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any
from unittest.mock import patch

import torch
from torch import Tensor

from fairseq_mhe.attention import KINDS, Attention, base, build_attention, kernel
from fairseq_mhe.attention.kernel import CausalMask
from fairseq_mhe.common.arguments import Parser
from fairseq_mhe.common.errors import UserError, exit_status
from fairseq_mhe.common.files import output_folder, write_text
from fairseq_mhe.common.progress import say
from fairseq_mhe.common.tables import align

PROGRAM = "gpu_check.sh"
#: The greatest difference from float32, relative to the greatest number there: fp16 keeps 11 bits,
#: bf16 8.
TOLERANCES = {
    "float32": (torch.float32, 1e-4),
    "fp16": (torch.float16, 5e-3),
    "bf16": (torch.bfloat16, 3e-2),
}
EMBED_DIM, HEADS, B, T, S = 256, 4, 8, 33, 40
PLACES = ("encoder", "decoder", "cross")
#: What is compared with stock fairseq.
COMPARED = "mha,mhe_mul"
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


def parity(device: str) -> Iterator[Row]:
    """A row for each kind: the three dtypes, the worst of all places."""
    for kind in KINDS:
        found, holds = [], True
        for name, (dtype, tolerance) in TOLERANCES.items():
            worst = max(distance(kind, place, dtype, device) for place in PLACES)
            found.append(f"{name} {worst:.0e}")
            holds = holds and worst <= tolerance
        yield "parity", kind, ", ".join(found), "yes" if holds else "NO"


def commands(out: Path, device: str) -> dict[str, list[str]]:
    """The other checks, by name: commands of ours. On the CPU they are as small as can be."""
    quickstart = ["quickstart", "--attention", COMPARED, "--out", str(out / "quickstart")]
    bench = {
        name: ["bench", name, "--attention", COMPARED, "--device", device, "--out", str(out / name)]
        for name in ("training", "generation")
    }
    if device == "cuda":
        quickstart += ["--limit", "3000", "--updates", "300"]
        bench["training"] += ["--row", "base", "--dtype", "float32,bf16"]
        bench["generation"] += ["--row", "base", "--dtype", "float32,fp16"]
        bench["generation"] += ["--batch-sizes", "32", "--lengths", "50"]
    else:
        quickstart += ["--limit", "200", "--updates", "20", "--cpu"]
        for words in bench.values():
            words += ["--row", "tiny", "--repetitions", "1", "--threads", "1"]
        bench["training"] += ["--max-tokens", "64", "--batches", "1"]
        bench["generation"] += ["--batch-sizes", "1", "--lengths", "4", "--beams", "2"]
    return {"training, generation": quickstart, **{f"speed, {k}": v for k, v in bench.items()}}


def tried(what: str, words: list[str], out: Path) -> list[Row]:
    """Run a command of ours, and read what it found; what it says goes into a log in ``out``."""
    log, begun = out / f"{what}.log", time.monotonic()
    line = [sys.executable, "-P", "-m", "fairseq_mhe.cli", *words]
    with log.open("w", encoding="utf-8") as file:
        status = subprocess.run(line, stdout=file, stderr=subprocess.STDOUT, check=False).returncode
    say(f"{what}: {time.monotonic() - begun:.0f} s")
    if status:
        return [(what, words[0], f"exit status {status}: see {log}", "NO")]
    if words[0] == "quickstart":
        table = json.loads((out / "quickstart" / "table.json").read_text(encoding="utf-8"))
        return [_trained(what, model) for model in table]
    cells = json.loads((out / f"{words[1]}.json").read_text(encoding="utf-8"))["cells"]
    return [_measured(what, cell) for cell in cells]


def _trained(what: str, model: dict[str, Any]) -> Row:
    speeds = f"{model['tokens_per_second']:,.0f} tokens/s, {model['sentences_per_second']:,.0f}"
    return what, model["attention"], f"{speeds} sentences/s, BLEU {model['bleu']:.1f}", "yes"


def _measured(what: str, cell: dict[str, Any]) -> Row:
    """A cell of a benchmark: how fast stock fairseq and ours are in it."""
    facts = [f"{name.replace('_', ' ')} {value}" for name, value in cell["cell"].items()]
    found, holds = [], True
    for kind, result in cell["variants"].items():
        ratio = result.get("relative")
        found.append(f"{kind} {ratio['median']:.2f}" if ratio else f"{kind} {result['status']}")
        holds = holds and result["status"] == "ok"
    return what, ", ".join(facts), ", ".join(found), "yes" if holds else "NO"


def run(args: argparse.Namespace) -> int:
    """Check, print the table and keep it in ``--out``."""
    device = "cpu" if args.cpu else "cuda"
    if not args.cpu and not torch.cuda.is_available():
        raise UserError("torch sees no GPU here; a dry run without one: --cpu")
    out = output_folder(args.out)
    rows = list(parity(device))
    for what, words in commands(out, device).items():
        rows += tried(what, words, out)
    where = "the CPU, a dry run" if args.cpu else torch.cuda.get_device_name()
    table = align(["check", "what", "found", "holds"], rows, left=range(4))
    text = f"{where}, torch {torch.__version__}\n\n{table}\n"
    write_text(out / "gpu_check.md", text)
    print(text, end="")
    return int(any(row[-1] != "yes" for row in rows))


def main(argv: Sequence[str] | None = None) -> int:
    """All of it."""
    parser = Parser(prog=PROGRAM, description=__doc__)
    add = parser.add_argument
    add("--out", type=Path, default=Path("runs/gpu_check"), help="folder (default: %(default)s)")
    add("--cpu", action="store_true", help="a dry run on the CPU, in tiny sizes: a minute")
    return exit_status(PROGRAM, lambda: run(parser.parse_args(argv)))


if __name__ == "__main__":
    sys.exit(main())
