"""Whether fairseq-mhe is right on a GPU, then how fast it is beside stock fairseq.

Parity: every kind of attention in every place and precision against float32 on the CPU. Questions:
how often a step of beam search waits for the GPU. Learning: short trainings with translation.
Training and translation: row base with 32,768 words (a smaller dictionary is filled up) on batches
of real text, so that nearly every batch has a new shape. Stock fairseq runs as its users get it,
with cuDNN's attention allowed, and once more without. gpu_check.md and .json of --out hold each row
as soon as it is measured.

Exit status: 0 where all holds, 1 where something does not, 2 where there is no GPU.
"""

import argparse
import contextlib
import itertools
import subprocess
import sys
import time
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import fairseq_mhe  # imports fairseq without its messages

# isort: split
import numpy as np
import torch
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel

from fairseq_mhe.attention import KINDS, Attention, build_attention
from fairseq_mhe.attention.kernel import CausalMask
from fairseq_mhe.bench import models
from fairseq_mhe.bench.benchmark import DTYPES, STOCK, Settings
from fairseq_mhe.bench.generation import CTranslate2Benchmark, GenerationBenchmark
from fairseq_mhe.bench.meters import attention_kernel
from fairseq_mhe.bench.training import TrainingBenchmark
from fairseq_mhe.common.arguments import Parser
from fairseq_mhe.common.errors import UserError, exit_status
from fairseq_mhe.common.files import output_folder, read_json
from fairseq_mhe.common.progress import say
from fairseq_mhe.common.quiet import quieten_start_up
from fairseq_mhe.common.system import machine, software
from fairseq_mhe.models.families import make_task
from fairseq_mhe.models.options import PLACES
from fairseq_mhe.prepare.corpora.home_assistant import HomeAssistant
from fairseq_mhe.prepare.data_folder import open_binary
from fairseq_mhe.report.table import Block, Table

Row = dict[str, Any]
Batches = list[dict[str, Any]]

#: The greatest difference from float32, relative to the greatest number there: fp16 keeps 11 bits,
#: bf16 8.
TOLERANCES = {"float32": 1e-4, "fp16": 5e-3, "bf16": 3e-2}
EMBED_DIM, HEADS, B, T, S = 256, 4, 8, 33, 40
#: A beam search in which hypotheses move.
SEARCH: Row = {"batch": 8, "beam": 5, "length": 20, "source_length": 20, "dtype": "fp16"}
#: Bits a target token of a model that knows nothing: 4,000 words, all as probable.
UNTRAINED = 12.0
#: Stock fairseq where torch may not choose cuDNN's attention, which ours never take.
WITHOUT = "stock without cuDNN"
NOT_CUDNN = [SDPBackend.FLASH_ATTENTION, SDPBackend.EFFICIENT_ATTENTION, SDPBackend.MATH]
MODELS = (STOCK, WITHOUT, "mha", "mhe_mul")
#: The column that compares a row with a model of the same settings.
BESIDE = {STOCK: "times stock", WITHOUT: "without cuDNN"}
#: Translated together: so many sentences, or so many tokens.
SENTENCES, TOKENS = 32, 4096
#: Updates that the profiler watches.
PROFILED = 10


@dataclass(frozen=True)
class Size:
    """How much is measured.

    ``quickstart``: options of the quickstarts, and ``learned_in`` their precisions; ``trained``:
    tokens of a training's batches, and precision; ``sentences``: how many are translated, their
    tokens at most ``longest``.
    """

    settings: Settings
    quickstart: tuple[str, ...]
    learned_in: tuple[str, ...]
    trained: tuple[tuple[int, str], ...]
    warm_up: int
    updates: int
    sentences: int
    longest: int
    translated_in: str
    in_ctranslate2: str


GPU = Size(
    settings=Settings(row="base", device="cuda", threads=1, vocabulary=32_768),
    quickstart=("--limit", "3000", "--updates", "200"),
    learned_in=("bf16", "fp16"),
    trained=((4096, "bf16"), (4096, "fp16"), (16_384, "bf16")),
    warm_up=20,
    updates=100,
    sentences=256,
    longest=100,
    translated_in="fp16",
    in_ctranslate2="float16",
)
CPU = Size(
    settings=Settings(row="tiny", device="cpu", threads=1, vocabulary=10_000),
    quickstart=("--limit", "200", "--updates", "20", "--cpu"),
    learned_in=("float32",),
    trained=((256, "float32"),),
    warm_up=1,
    updates=3,
    sentences=6,
    longest=8,
    translated_in="float32",
    in_ctranslate2="float32",
)


class Results:
    """The rows of each part, printed and written as they come."""

    def __init__(self, out: Path, size: Size) -> None:
        self.out, self.size = out, size
        self.parts: dict[str, list[Row]] = {}

    def measure(self, part: str, by: Callable[[Row], Row], **what: Any) -> None:
        """Add a row; a failure is a row, too."""
        try:
            row = {**what, **by(what)}
        except Exception as error:  # of CUDA, a compiler or a library
            note = f"{type(error).__name__}: {' '.join(str(error).split())[:200]}"
            row = {**what, "note": note, "holds": "NO"}
        rows = self.parts.setdefault(part, [])
        for stock in rows:
            alike = all(
                stock.get(name) == row.get(name) for name in ("tokens", "dtype", "batch")
            )
            if alike and stock.get("model") in BESIDE and "rate" in stock and "rate" in row:
                row.setdefault(BESIDE[stock["model"]], row["rate"] / stock["rate"])
        rows.append(row)
        say(f"{part}: " + ", ".join(f"{name} {cell(value)}" for name, value in row.items()))
        self.write()

    def write(self) -> None:
        """Write gpu_check.md and gpu_check.json."""
        device = self.size.settings.device
        date = time.strftime("%Y-%m-%dT%H:%M:%S%z")
        facts = {"date": date, **machine(device), **software()}
        blocks = []
        for part, rows in self.parts.items():
            names = dict.fromkeys(name for row in rows for name in row)
            columns = [(name, partial(shown, name)) for name in names]
            blocks.append(Block(columns, rows, part.capitalize()))
        notes = [f"{name}: {value}" for name, value in facts.items()]
        table = Table(f"Check on a {'GPU' if device == 'cuda' else 'CPU'}", blocks, notes)
        table.write(self.out / "gpu_check.md", {"facts": facts, **self.parts})


def shown(name: str, row: Row) -> str:
    """A value of a row, empty where it has none."""
    return cell(row.get(name, ""))


def cell(value: str | float) -> str:
    """Words as they are, numbers with two decimals where they are not whole."""
    formats = {str: "", int: ","}
    return format(value, formats.get(type(value), ",.2f"))


def parity(what: Row, device: str) -> Row:
    """How far a kind is from float32, at the worst of all places, and the kernel that ran."""
    found: Row = {}
    for name in TOLERANCES:
        worst = max(distance(what["kind"], place, DTYPES[name], device) for place in PLACES)
        found[name] = f"{worst:.0e}"
    holds = all(float(found[name]) <= most for name, most in TOLERANCES.items())
    in_bf16 = partial(distance, what["kind"], "decoder", torch.bfloat16, device)
    return {**found, "kernel": attention_kernel(in_bf16), "holds": "yes" if holds else "NO"}


def distance(kind: str, place: str, dtype: torch.dtype, device: str) -> float:
    """How far a sublayer on ``device`` in ``dtype`` is from plain steps in float32 on the CPU.

    Of output and gradients, the greatest difference beside the greatest number.
    """
    torch.manual_seed(1)
    options = {
        "self_attention": place != "cross",
        "encoder_decoder_attention": place == "cross",
    }
    layer = build_attention(kind, EMBED_DIM, HEADS, **options)
    # Rounded first, so that the computing is compared alone.
    layer.to(dtype).float()
    x = torch.randn(T, B, EMBED_DIM).to(dtype).float()
    y = torch.randn(S, B, EMBED_DIM).to(dtype).float() if place == "cross" else x
    expected = output_and_gradients(layer, x, y, place, plain=True)
    layer.to(device, dtype)
    found = output_and_gradients(layer, x.to(device, dtype), y.to(device, dtype), place)
    differences = []
    for ours, theirs in zip(found, expected, strict=True):
        error = (ours.float().cpu() - theirs).abs().max() / theirs.abs().max()
        differences.append(float(error.nan_to_num(float("inf"))))
    return max(differences)


def output_and_gradients(
    layer: Attention, x: Tensor, y: Tensor, place: str, plain: bool = False
) -> list[Tensor]:
    """The output (T, B, C) where no sentence is padded, and its gradients by input and weights.

    ``plain``: ask for the weights too, which takes the steps of the equation one by one.
    """
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
        need_weights=plain,
    )
    if place != "cross":
        out = out * ~padding.to(x.device).t().unsqueeze(-1)
    # The sum: a mean's gradients are too small for fp16, which training gives a loss scale.
    by_input, *by_weights = torch.autograd.grad(
        out.float().square().sum(), [x, *layer.parameters()]
    )
    return [out.detach(), by_input, torch.cat([weight.flatten() for weight in by_weights])]


def questions(what: Row, device: str) -> Row:
    """How often a step of beam search waits for the GPU's answer, by our code and fairseq's."""
    search = GenerationBenchmark(
        what["kind"], Settings(row="tiny", device=device, threads=1, vocabulary=1000)
    )
    search.prepare(SEARCH)
    search.repetition()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        torch.cuda.set_sync_debug_mode("warn")
        try:
            search.repetition()
        finally:
            torch.cuda.set_sync_debug_mode("default")
    files = [Path(each.filename) for each in caught if "synchronizing" in str(each.message)]
    package = Path(fairseq_mhe.__file__).parent
    ours = sum(package in path.parents for path in files)
    a_step = {
        "ours": ours / SEARCH["length"],
        "fairseq": (len(files) - ours) / SEARCH["length"],
    }
    return {**a_step, "holds": "yes" if a_step["ours"] <= 1 else "NO"}


def learn(what: Row, results: Results) -> Row:
    """A quickstart in a process: the loss of each model, and whether all have learned."""
    folder = results.out / what["dtype"]
    command = [sys.executable, "-P", "-m", "fairseq_mhe.cli", "quickstart"]
    command += [*results.size.quickstart, "--attention", "mha,mhe_mul"]
    command += ["--precision", what["dtype"], "--out", str(folder)]
    subprocess.check_call(command, stdout=subprocess.DEVNULL)
    table = read_json(folder / "table.json")
    losses = {model["attention"]: model["valid_loss"] for model in table}
    learned = all(loss < UNTRAINED for loss in losses.values())
    return {**losses, "holds": "yes" if learned else "NO"}


def variant_of(model: str) -> str:
    """The variant of ``fairseq-mhe bench`` that a model is."""
    return STOCK if model == WITHOUT else model


def kernels_of(model: str) -> contextlib.AbstractContextManager[None]:
    """The attention that torch may choose for a model."""
    return sdpa_kernel(NOT_CUDNN) if model == WITHOUT else contextlib.nullcontext()


def read_batches(folder: Path, tokens: int, size: Size) -> Batches:
    """Batches of shuffled training pairs, of ``tokens`` each; they repeat where there are few."""
    data = open_binary(folder)
    cfg = models.configuration("mha", size.settings, "float32").task
    cfg.data, (cfg.source_lang, cfg.target_lang) = str(data.binary), data.languages
    task = make_task(size.settings.vocabulary, config=cfg)
    task.load_dataset("train")
    epoch = task.get_batch_iterator(
        task.dataset("train"), max_tokens=tokens, required_batch_size_multiple=8, seed=1
    )
    batches = itertools.cycle(epoch.next_epoch_itr())
    return list(itertools.islice(batches, size.warm_up + size.updates))


def train(what: Row, batches: Batches, size: Size, compiled: bool) -> Row:
    """Tokens a second; of an update its milliseconds, kernels, and how long the GPU computes."""
    training = TrainingBenchmark(variant_of(what["model"]), size.settings)
    with kernels_of(what["model"]):
        training.prepare({"max_tokens": what["tokens"], "dtype": what["dtype"]})
        if compiled:
            # A layer is one of the cases of its class's code, of which there may be 8 otherwise.
            torch._dynamo.config.recompile_limit = 128
            model = training.trainer.model
            for layer in (*model.encoder.layers, *model.decoder.layers):
                layer.compile(dynamic=True)
        training.batches = batches[: size.warm_up]
        training.repetition()
        training.batches = batches[size.warm_up :]
        seconds = training.repetition()["total"]
        row = {"rate": training.facts()["units"] / seconds, "ms": 1000 * seconds / size.updates}
        if size.settings.device == "cpu":
            return row
        training.batches = training.batches[:PROFILED]
        return {**row, **profile(training)}


def profile(training: TrainingBenchmark) -> Row:
    """Of an update: kernels that run on the GPU, and milliseconds in which it computes."""
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as profiler:
        training.repetition()
    cuda = torch.autograd.DeviceType.CUDA
    events = [event for event in profiler.events() or () if event.device_type == cuda]
    busy = sum(event.time_range.elapsed_us() for event in events) / 1000
    updates = len(training.batches)
    return {"kernels": len(events) / updates, "busy ms": busy / updates}


def sentences(size: Size) -> dict[str, list[Row]]:
    """Lengths as of a news test in subwords, in batches of sentences and in batches of tokens."""
    drawn = 24 * np.exp(0.6 * np.random.default_rng(1).standard_normal(size.sentences))
    lengths = sorted(np.clip(drawn, 4, size.longest).astype(int).tolist(), reverse=True)
    found: dict[str, list[Row]] = {}
    for name, most in (
        (f"{SENTENCES} sentences", SENTENCES),
        (f"{TOKENS:,} tokens", len(lengths)),
    ):
        start, found[name] = 0, []
        while start < len(lengths):
            length = lengths[start]
            batch = min(most, len(lengths) - start, max(1, TOKENS // length))
            shape = {"batch": batch, "length": length, "source_length": length}
            found[name].append({**shape, "beam": 5, "dtype": size.translated_in})
            start += batch
    return found


def translate(what: Row, batches: list[Row], size: Size) -> Row:
    """Sentences a second, with nearly every shape new; outputs are as long as their sources."""
    variant = variant_of(what["model"])
    search = GenerationBenchmark(variant, size.settings)
    if what["engine"] == "CTranslate2":
        search = CTranslate2Benchmark(variant, size.settings, size.in_ctranslate2)
    seconds = 0.0
    with kernels_of(what["model"]), torch.no_grad():
        search.prepare(batches[-1])
        search.repetition()
        for batch in batches:
            search.prepare(batch)
            seconds += search.repetition()["total"]
    return {"rate": size.sentences / seconds}


def check(results: Results) -> None:
    """Whether fairseq-mhe is right."""
    device = results.size.settings.device
    for kind in KINDS:
        results.measure("parity", partial(parity, device=device), kind=kind)
    for kind in KINDS if device == "cuda" else ():
        results.measure("questions a step", partial(questions, device=device), kind=kind)
    for precision in results.size.learned_in:
        results.measure(
            "learning, bits a token", partial(learn, results=results), dtype=precision
        )


def compare(results: Results, data: Path | None, compiled: bool) -> None:
    """How fast fairseq-mhe is; stock fairseq comes before what is compared with it."""
    size = results.size
    folder = data or HomeAssistant(out=results.out / "data").prepare()
    for tokens, dtype in size.trained:
        batches = read_batches(folder, tokens, size)
        by = partial(train, batches=batches, size=size, compiled=compiled)
        for model in (*MODELS, "mhe_conv"):
            results.measure("training, tokens/s", by, tokens=tokens, dtype=dtype, model=model)
    for engine in ("fairseq", "CTranslate2"):
        for name, shapes in sentences(size).items():
            by = partial(translate, batches=shapes, size=size)
            for model in MODELS:
                if engine == "fairseq" or model != WITHOUT:
                    what = {"batch": name, "engine": engine, "model": model}
                    results.measure("translation, sentences/s", by, **what)


def run(args: argparse.Namespace) -> int:
    """All of it; 1 where something does not hold."""
    if not args.cpu and not torch.cuda.is_available():
        raise UserError("torch sees no GPU here; for a dry run without a GPU add --cpu")
    results = Results(output_folder(args.out), CPU if args.cpu else GPU)
    check(results)
    compare(results, args.data, args.compile)
    print((results.out / "gpu_check.md").read_text(encoding="utf-8"), end="")
    rows = itertools.chain(*results.parts.values())
    return int(any(row.get("holds") == "NO" for row in rows))


def main(argv: Sequence[str] | None = None) -> int:
    """Parse the options and run."""
    quieten_start_up()
    raw = argparse.RawDescriptionHelpFormatter
    parser = Parser(prog="gpu_check.py", description=__doc__, formatter_class=raw)
    add = parser.add_argument
    add("--out", type=Path, default=Path("runs/gpu"), help="folder (default: %(default)s)")
    add(
        "--data",
        type=Path,
        metavar="DATA",
        help="data folder (default: of the embedded corpus)",
    )
    add("--compile", action="store_true", help="train with each layer by torch.compile")
    add("--cpu", action="store_true", help="a dry run on the CPU, in tiny sizes")
    return exit_status("gpu_check.py", lambda: run(parser.parse_args(argv)))


if __name__ == "__main__":
    sys.exit(main())
