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
import os
import statistics
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import fairseq_mhe  # imports fairseq without its messages

# isort: split
import numpy as np
import torch
from fairseq.trainer import Trainer
from torch import Tensor

from fairseq_mhe.attention import KINDS, Attention, build_attention
from fairseq_mhe.attention.kernel import CausalMask
from fairseq_mhe.bench import models
from fairseq_mhe.bench.benchmark import DTYPES, STOCK, Settings
from fairseq_mhe.bench.generation import GenerationBenchmark
from fairseq_mhe.bench.meters import attention_kernel
from fairseq_mhe.bench.sentences import translation_batch
from fairseq_mhe.common.arguments import Parser
from fairseq_mhe.common.errors import UserError, exit_status
from fairseq_mhe.common.files import output_folder, read_json, write_json, write_text
from fairseq_mhe.common.progress import say
from fairseq_mhe.common.quiet import quieten_start_up
from fairseq_mhe.common.system import machine, software
from fairseq_mhe.common.tables import align
from fairseq_mhe.convert.fold import folded_parameters
from fairseq_mhe.convert.to_ctranslate2 import convert_stock, open_translator
from fairseq_mhe.models.families import make_task
from fairseq_mhe.models.options import PLACES
from fairseq_mhe.prepare.corpora.home_assistant import HomeAssistant
from fairseq_mhe.prepare.data_folder import open_data

Row = dict[str, Any]
Batches = Sequence[dict[str, Any]]

#: The greatest difference from float32, relative to the greatest number there: fp16 keeps 11 bits,
#: bf16 8.
TOLERANCES = {"float32": 1e-4, "fp16": 5e-3, "bf16": 3e-2}
EMBED_DIM, HEADS, B, T, S = 256, 4, 8, 33, 40
#: A beam search in which hypotheses move.
SEARCH: Row = {"batch": 8, "beam": 5, "length": 20, "source_length": 20, "dtype": "fp16"}
#: Bits a target token of a model that knows nothing: 4,000 words, all as probable.
UNTRAINED = 12.0
#: Models, and whether torch may choose cuDNN's attention for them; ours never take it.
MODELS = ((STOCK, "allowed"), (STOCK, "off"), ("mha", "never"), ("mhe_mul", "never"))
IN_CTRANSLATE2 = ((STOCK, "never"), *MODELS[2:])
#: The column that compares a row with stock fairseq's, by cuDNN's part in that.
BESIDE = {"allowed": "times stock", "off": "without cuDNN"}
BEAM = 5
#: Translated together: so many sentences, or so many tokens.
SENTENCES, TOKENS = 32, 4096
#: Updates that the profiler watches.
PROFILED = 10


@dataclass(frozen=True)
class Size:
    """How much is measured: on a GPU, unless other values are given."""

    device: str = "cuda"
    row: str = "base"
    vocabulary: int = 32_768
    #: Options of the quickstarts, and their precisions.
    quickstart: tuple[str, ...] = ("--limit", "3000", "--updates", "200")
    learned_in: tuple[str, ...] = ("bf16", "fp16")
    #: Tokens of a training's batches, and precision.
    trained: tuple[tuple[int, str], ...] = ((4096, "bf16"), (4096, "fp16"), (16_384, "bf16"))
    warm_up: int = 20
    updates: int = 100
    #: Sentences that are translated, their greatest length, and precision.
    sentences: int = 256
    longest: int = 100
    translated_in: str = "fp16"

    @property
    def settings(self) -> Settings:
        """Those that all models share."""
        return Settings(row=self.row, device=self.device, threads=1, vocabulary=self.vocabulary)

    def wait(self) -> None:
        """Until the GPU has done its work."""
        if self.device == "cuda":
            torch.cuda.synchronize()


GPU = Size()
CPU = Size(
    device="cpu",
    row="tiny",
    vocabulary=10_000,
    quickstart=("--limit", "200", "--updates", "20", "--cpu"),
    learned_in=("float32",),
    trained=((256, "float32"),),
    warm_up=1,
    updates=3,
    sentences=6,
    longest=8,
    translated_in="float32",
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
        for stock in self.parts.setdefault(part, []):
            alike = all(stock.get(name) == row.get(name) for name in ("tokens", "dtype", "batch"))
            if alike and stock.get("cuDNN") in BESIDE and "rate" in stock and "rate" in row:
                row[BESIDE[stock["cuDNN"]]] = row["rate"] / stock["rate"]
        self.parts[part].append(row)
        say(f"{part}: " + ", ".join(f"{name} {cell(value)}" for name, value in row.items()))
        date = time.strftime("%Y-%m-%dT%H:%M:%S%z")
        facts = {"date": date, **machine(self.size.device), **software()}
        write_json(self.out / "gpu_check.json", {"facts": facts, **self.parts})
        lines = [f"- {name}: {value}" for name, value in facts.items()]
        device = "GPU" if self.size.device == "cuda" else "CPU"
        text = [f"# Check on a {device}", "", *lines]
        for part, rows in self.parts.items():
            names = list(dict.fromkeys(name for row in rows for name in row))
            cells = [[cell(row.get(name, "")) for name in names] for row in rows]
            text += ["", f"## {part.capitalize()}", "", align(names, cells)]
        write_text(self.out / "gpu_check.md", "\n".join(text) + "\n")


def cell(value: str | float) -> str:
    """Words as they are, numbers with three digits at least."""
    if isinstance(value, str):
        return value
    if isinstance(value, int) or value >= 1000:
        return f"{value:,.0f}"
    return f"{value:.1f}" if value >= 10 else f"{value:.2f}"


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
    options = {"self_attention": place != "cross", "encoder_decoder_attention": place == "cross"}
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
    a_step = {"ours": ours / SEARCH["length"], "fairseq": (len(files) - ours) / SEARCH["length"]}
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


@contextlib.contextmanager
def cudnn(allowed: bool) -> Iterator[None]:
    """torch may choose cuDNN's attention inside, as it does by itself, or not."""
    before = torch.backends.cuda.cudnn_sdp_enabled()
    torch.backends.cuda.enable_cudnn_sdp(allowed)
    try:
        yield
    finally:
        torch.backends.cuda.enable_cudnn_sdp(before)


def read_batches(folder: Path, tokens: int, size: Size) -> Batches:
    """Batches of shuffled training pairs, of ``tokens`` each; they repeat where there are few."""
    data = open_data(folder)
    cfg = models.configuration("mha", size.settings, "float32").task
    cfg.data, (cfg.source_lang, cfg.target_lang) = str(data.binary), data.languages
    task = make_task(size.vocabulary, config=cfg)
    task.load_dataset("train")
    epoch = task.get_batch_iterator(
        task.dataset("train"), max_tokens=tokens, required_batch_size_multiple=8, seed=1
    )
    batches = itertools.cycle(epoch.next_epoch_itr())
    return list(itertools.islice(batches, size.warm_up + size.updates))


def train(what: Row, batches: Batches, size: Size, compiled: bool) -> Row:
    """Milliseconds of an update, kernels that it starts, and how long the GPU computes in it."""
    words = ["--max-tokens", str(what["tokens"]), "--save-dir", os.devnull]
    measured = batches[size.warm_up :]
    with cudnn(what["cuDNN"] != "off"):
        cfg = models.configuration(what["model"], size.settings, what["dtype"], words)
        task, model = models.build(cfg, size.vocabulary)
        if compiled:
            # A layer is one of the cases of its class's code, of which there may be 8 otherwise.
            torch._dynamo.config.recompile_limit = 128
            for layer in (*model.encoder.layers, *model.decoder.layers):
                layer.compile(dynamic=True)
        trainer = Trainer(cfg, task, model, task.build_criterion(cfg.criterion))
        update_times(trainer, batches[: size.warm_up], size)
        times = update_times(trainer, measured, size)
        row = profile(trainer, measured[:PROFILED], size)
    if row:
        row["waiting"] = 1 - row["busy ms"] / statistics.mean(times[:PROFILED])
    tokens = sum(batch["ntokens"] for batch in measured)
    row |= {"ms": statistics.mean(times), "median": statistics.median(times)}
    return {**row, "rate": 1000 * tokens / sum(times)}


def update_times(trainer: Trainer, batches: Batches, size: Size) -> list[float]:
    """Milliseconds of an update on each batch; the last waits until the GPU is done with all."""
    times = []
    size.wait()
    start = time.perf_counter()
    for number, batch in enumerate(batches, 1):
        trainer.train_step([batch])
        if number == len(batches):
            size.wait()
        now = time.perf_counter()
        times.append(1000 * (now - start))
        start = now
    return times


def profile(trainer: Trainer, batches: Batches, size: Size) -> Row:
    """Of an update: kernels that run on the GPU, and milliseconds in which it computes."""
    if size.device == "cpu":
        return {}
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as profiler:
        update_times(trainer, batches, size)
    cuda = torch.autograd.DeviceType.CUDA
    events = [event for event in profiler.events() or () if event.device_type == cuda]
    busy = sum(event.time_range.elapsed_us() for event in events) / 1000
    return {"kernels": len(events) / len(batches), "busy ms": busy / len(batches)}


def sentences(size: Size) -> dict[str, list[Row]]:
    """Lengths as of a news test in subwords, in batches of sentences and in batches of tokens."""
    drawn = 24 * np.exp(0.6 * np.random.default_rng(1).standard_normal(size.sentences))
    lengths = sorted(np.clip(drawn, 4, size.longest).astype(int).tolist(), reverse=True)
    found: dict[str, list[Row]] = {}
    for name, most in ((f"{SENTENCES} sentences", SENTENCES), (f"{TOKENS:,} tokens", len(lengths))):
        start, found[name] = 0, []
        while start < len(lengths):
            length = lengths[start]
            batch = min(most, len(lengths) - start, max(1, TOKENS // length))
            shape = {"batch": batch, "length": length, "source_length": length}
            found[name].append({**shape, "beam": BEAM, "dtype": size.translated_in})
            start += batch
    return found


def by_fairseq(what: Row, batches: list[Row], size: Size) -> Row:
    """Sentences a second of fairseq's beam search; outputs are as long as their sources."""
    search = GenerationBenchmark(what["model"], size.settings)

    def seconds(batch: Row) -> float:
        search.prepare(batch)
        return search.repetition()["total"]

    with cudnn(what["cuDNN"] != "off"), torch.no_grad():
        return rates(seconds, batches)


def by_ctranslate2(what: Row, batches: list[Row], size: Size) -> Row:
    """Sentences a second of CTranslate2 with the model of an export, shared heads kept once."""
    stock = models.configuration(STOCK, size.settings, "float32")
    cfg = models.configuration(what["model"], size.settings, "float32")
    task, model = models.build(cfg, size.vocabulary)
    ours = what["model"] != STOCK
    parameters = folded_parameters(model.eval()) if ours else model.state_dict()
    precision = "float16" if size.device == "cuda" else "float32"
    words, languages = task.source_dictionary, models.LANGUAGES

    def seconds(batch: Row) -> float:
        length = batch["length"]
        made = translation_batch(words, batch["batch"], length, seed=1)
        tokens = made["net_input"]["src_tokens"].tolist()  # (B, S)
        texts = [[words[i] for i in row if i >= words.nspecial] for row in tokens]
        limits = {"min_decoding_length": length, "max_decoding_length": length}
        start = time.perf_counter()
        translator.translate_batch(texts, beam_size=BEAM, **limits)
        return time.perf_counter() - start

    with tempfile.TemporaryDirectory() as name:
        for language in languages:
            words.save(f"{name}/dict.{language}.txt")
        place, options = Path(name), vars(stock.model)
        convert_stock(options, parameters, place, languages, place / "model", precision, ours)
        translator = open_translator(place / "model", size.device, precision, 1)
        return rates(seconds, batches)


def rates(seconds: Callable[[Row], float], batches: list[Row]) -> Row:
    """Sentences a second, first with nearly every shape new, then again."""
    seconds(batches[-1])
    count = sum(batch["batch"] for batch in batches)
    return {name: count / sum(map(seconds, batches)) for name in ("rate", "again")}


def check(results: Results) -> None:
    """Whether fairseq-mhe is right."""
    device = results.size.device
    for kind in KINDS:
        results.measure("parity", partial(parity, device=device), kind=kind)
    for kind in KINDS if device == "cuda" else ():
        results.measure("questions a step", partial(questions, device=device), kind=kind)
    for precision in results.size.learned_in:
        results.measure("learning, bits a token", partial(learn, results=results), dtype=precision)


def compare(results: Results, data: Path | None, compiled: bool) -> None:
    """How fast fairseq-mhe is; stock fairseq comes before what is compared with it."""
    size = results.size
    folder = data or HomeAssistant(out=results.out / "data").prepare()
    for tokens, precision in size.trained:
        batches = read_batches(folder, tokens, size)
        by = partial(train, batches=batches, size=size, compiled=compiled)
        for model, allowed in (*MODELS, ("mhe_conv", "never")):
            what = {"tokens": tokens, "dtype": precision, "model": model, "cuDNN": allowed}
            results.measure("training, tokens/s", by, **what)
    engines = (("fairseq", by_fairseq, MODELS), ("CTranslate2", by_ctranslate2, IN_CTRANSLATE2))
    for engine, translate, compared in engines:
        for name, batches in sentences(size).items():
            by = partial(translate, batches=batches, size=size)
            for model, allowed in compared:
                what = {"batch": name, "engine": engine, "model": model, "cuDNN": allowed}
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
    add("--data", type=Path, metavar="DATA", help="data folder (default: of the embedded corpus)")
    add("--compile", action="store_true", help="train with each layer by torch.compile")
    add("--cpu", action="store_true", help="a dry run on the CPU, in tiny sizes")
    return exit_status("gpu_check.py", lambda: run(parser.parse_args(argv)))


if __name__ == "__main__":
    sys.exit(main())
