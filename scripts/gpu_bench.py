"""Training and translation on a GPU beside stock fairseq, on batches of real text.

    python scripts/gpu_bench.py              # the embedded corpus
    python scripts/gpu_bench.py --data DATA  # another one: a data folder
    python scripts/gpu_bench.py --cpu        # a dry run in tiny sizes, without a GPU

Row base with 32,768 words; a smaller dictionary is filled up. Nearly every batch has a new shape,
as in a real training. Stock fairseq trains by its own --optimizer adam; it runs as its users get
it, with cuDNN's attention allowed, and once more without. Each row is printed when it is measured,
and kept at once in bench.json and bench.md of --out.
"""

import argparse
import contextlib
import itertools
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import fairseq_mhe  # noqa: F401 - imports fairseq without its messages

# isort: split
import numpy as np
import torch
from fairseq import utils
from fairseq.data import LanguagePairDataset, data_utils
from fairseq.trainer import Trainer

from fairseq_mhe.bench import models
from fairseq_mhe.bench.benchmark import DTYPES, STOCK, Settings
from fairseq_mhe.bench.sentences import translation_batch
from fairseq_mhe.common.arguments import Parser
from fairseq_mhe.common.errors import UserError, exit_status
from fairseq_mhe.common.files import output_folder, write_json, write_text
from fairseq_mhe.common.progress import say
from fairseq_mhe.common.quiet import quieten_start_up
from fairseq_mhe.common.system import machine, software
from fairseq_mhe.common.tables import align
from fairseq_mhe.convert.fold import folded_parameters
from fairseq_mhe.convert.to_ctranslate2 import convert_stock, open_translator
from fairseq_mhe.models.build import make_dictionary
from fairseq_mhe.prepare.corpora.home_assistant import HomeAssistant
from fairseq_mhe.prepare.data_folder import open_data

PROGRAM = "gpu_bench.py"
_COMPARED = ("times stock", "without cuDNN", "note")
_TIMES = ("ms", "median", "tokens/s", "kernels", "busy ms", "waiting")
COLUMNS = {
    "training": ("tokens", "precision", "model", "cuDNN", *_TIMES, *_COMPARED),
    "translation": ("engine", "model", "cuDNN", "batch", "sentences/s", "again", *_COMPARED),
}
#: How fast a row is, and what is the same in rows that are compared.
RATES = {"training": "tokens/s", "translation": "sentences/s"}
SETTING = ("tokens", "precision", "batch")
#: The columns that compare a row with stock fairseq, by what torch may choose there.
BESIDE = {"allowed": "times stock", "off": "without cuDNN"}
#: Models, and what torch may choose for stock fairseq's attention; ours never takes cuDNN's.
MODELS = ((STOCK, "allowed"), (STOCK, "off"), ("mha", "never"), ("mhe_mul", "never"))
IN_CTRANSLATE2 = ((STOCK, "never"), *MODELS[2:])
BEAM = 5
#: Translated together: so many sentences, or so many tokens.
SENTENCES, TOKENS = 32, 4096
#: Updates that the profiler watches.
PROFILED = 10
Batches = Sequence[dict[str, Any]]


@dataclass(frozen=True)
class Size:
    """How much is measured: on a GPU, unless other values are given."""

    device: str = "cuda"
    row: str = "base"
    vocabulary: int = 32_768
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


GPU = Size()
CPU = Size(
    device="cpu",
    row="tiny",
    vocabulary=10_000,
    trained=((256, "float32"),),
    warm_up=1,
    updates=3,
    sentences=6,
    longest=8,
    translated_in="float32",
)


@dataclass
class Results:
    """The rows so far, printed and written as they come."""

    out: Path
    size: Size
    end: float
    rows: dict[str, list[dict[str, Any]]] = field(
        default_factory=lambda: {part: [] for part in COLUMNS}
    )

    def measure(self, part: str, by: Callable[..., dict[str, Any]], **what: Any) -> None:
        """Add a row, where there is time for it; a failure is a row, too."""
        if time.monotonic() > self.end:
            say(f"{part}: {', '.join(map(cell, what.values()))}: no time left")
            return
        try:
            row = {**what, **by(what)}
        except Exception as error:  # of CUDA, a compiler or a library
            row = {**what, "note": f"{type(error).__name__}: {' '.join(str(error).split())[:200]}"}
        self.add(part, row)
        if torch.cuda.is_available():
            torch.cuda.empty_cache()

    def add(self, part: str, row: dict[str, Any]) -> None:
        """Keep a row, beside stock fairseq's of the same setting, and print it."""
        rate = RATES[part]
        for stock in self.rows[part] if rate in row else []:
            alike = all(stock.get(name) == row.get(name) for name in SETTING)
            if alike and stock["cuDNN"] in BESIDE and rate in stock:
                row[BESIDE[stock["cuDNN"]]] = row[rate] / stock[rate]
        self.rows[part].append(row)
        say(f"{part}: " + ", ".join(f"{name} {cell(value)}" for name, value in row.items()))
        self.write()

    def write(self) -> None:
        """Both files, whole."""
        facts = {**machine(self.size.device), **software()}
        write_json(self.out / "bench.json", {"facts": facts, **self.rows})
        lines = [f"- {name}: {value}" for name, value in facts.items()]
        text = ["# Training and translation beside stock fairseq", "", *lines]
        for part, rows in self.rows.items():
            cells = [[cell(row.get(name, "")) for name in COLUMNS[part]] for row in rows]
            text += ["", f"## {part.capitalize()}", "", align(list(COLUMNS[part]), cells)]
        write_text(self.out / "bench.md", "\n".join(text) + "\n")


def cell(value: str | float) -> str:
    """Words as they are, numbers with three digits at least."""
    if isinstance(value, str):
        return value
    if isinstance(value, int) or value >= 1000:
        return f"{value:,.0f}"
    return f"{value:.1f}" if value >= 10 else f"{value:.2f}"


@contextlib.contextmanager
def cudnn(allowed: bool) -> Iterator[None]:
    """torch may choose cuDNN's attention inside, as it does by itself, or not."""
    before = torch.backends.cuda.cudnn_sdp_enabled()
    torch.backends.cuda.enable_cudnn_sdp(allowed)
    try:
        yield
    finally:
        torch.backends.cuda.enable_cudnn_sdp(before)


def wait(size: Size) -> None:
    """Until the GPU has done its work."""
    if size.device == "cuda":
        torch.cuda.synchronize()


def read_batches(folder: Path, tokens: int, size: Size) -> Batches:
    """Batches of shuffled training pairs, of ``tokens`` each; they repeat where there are few."""
    data, words = open_data(folder), make_dictionary(size.vocabulary)
    sides: list[Any] = []
    for language in data.languages:
        prefix = data.binary / f"train.{'-'.join(data.languages)}.{language}"
        side = data_utils.load_indexed_dataset(str(prefix), words)
        sides += [side, side.sizes, words]
    pairs = LanguagePairDataset(*sides)
    with data_utils.numpy_seed(1):
        indices = pairs.ordered_indices()
    epoch = pairs.batch_by_size(indices, max_tokens=tokens, required_batch_size_multiple=8)
    shuffled = itertools.cycle(np.random.default_rng(1).permutation(len(epoch)))
    chosen = itertools.islice(shuffled, size.warm_up + size.updates)
    return [pairs.collater([pairs[index] for index in epoch[number]]) for number in chosen]


def train(what: dict[str, Any], batches: Batches, size: Size, compiled: bool) -> dict[str, Any]:
    """Milliseconds of an update, kernels that it starts, and how long the GPU computes in it."""
    words = ["--max-tokens", str(what["tokens"]), "--save-dir", os.devnull]
    measured = batches[size.warm_up :]
    with cudnn(what["cuDNN"] != "off"):
        cfg = models.configuration(what["model"], size.settings, what["precision"], words)
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
    return {**row, "tokens/s": 1000 * tokens / sum(times), "note": "compiled" if compiled else ""}


def update_times(trainer: Trainer, batches: Batches, size: Size) -> list[float]:
    """Milliseconds of an update on each batch; the last waits until the GPU is done with all."""
    times = []
    wait(size)
    start = time.perf_counter()
    for number, batch in enumerate(batches, 1):
        trainer.train_step([batch])
        if number == len(batches):
            wait(size)
        now = time.perf_counter()
        times.append(1000 * (now - start))
        start = now
    return times


def profile(trainer: Trainer, batches: Batches, size: Size) -> dict[str, float]:
    """Of an update: kernels that run on the GPU, and milliseconds in which it computes."""
    if size.device == "cpu":
        return {}
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as profiler:
        update_times(trainer, batches, size)
    cuda = torch.autograd.DeviceType.CUDA
    events = [event for event in profiler.events() or () if event.device_type == cuda]
    busy = sum(event.time_range.elapsed_us() for event in events) / 1000
    return {"kernels": len(events) / len(batches), "busy ms": busy / len(batches)}


def by_tokens(lengths: Sequence[int], most: int) -> list[list[int]]:
    """Sorted sentences in batches of at most ``most`` tokens, padding included."""
    batches: list[list[int]] = [[]]
    for length in lengths:
        if batches[-1] and batches[-1][0] * (len(batches[-1]) + 1) > most:
            batches.append([])
        batches[-1].append(length)
    return batches


def speeds(translate: Callable[[Any], Any], batches: Batches, size: Size) -> dict[str, float]:
    """Sentences a second, first with nearly every shape new, then again."""
    translate(batches[-1])
    rates = []
    for _ in range(2):
        wait(size)
        start = time.perf_counter()
        for batch in batches:
            translate(batch)
        wait(size)
        rates.append(sum(len(batch["id"]) for batch in batches) / (time.perf_counter() - start))
    return {"sentences/s": rates[0], "again": rates[1]}


def by_fairseq(what: dict[str, Any], batches: Batches, size: Size) -> dict[str, float]:
    """fairseq's beam search; outputs are as long as their sources."""
    cfg = models.configuration(what["model"], size.settings, size.translated_in)
    cfg.generation.beam, cfg.generation.max_len_a = BEAM, 0
    task, model = models.build(cfg, size.vocabulary)
    model = model.to(size.device, DTYPES[size.translated_in]).eval()
    model.prepare_for_inference_(cfg)

    def translate(batch: dict[str, Any]) -> None:
        length = batch["net_input"]["src_tokens"].size(1)
        cfg.generation.min_len = cfg.generation.max_len_b = length - 1
        search = task.build_generator([model], cfg.generation)
        given = utils.move_to_cuda(batch) if size.device == "cuda" else batch
        task.inference_step(search, [model], given)

    with cudnn(what["cuDNN"] != "off"), torch.no_grad():
        return speeds(translate, batches, size)


def by_ctranslate2(what: dict[str, Any], batches: Batches, size: Size) -> dict[str, float]:
    """CTranslate2's: the model of an export, with shared heads kept once."""
    stock = models.configuration(STOCK, size.settings, "float32")
    cfg = models.configuration(what["model"], size.settings, "float32")
    task, model = models.build(cfg, size.vocabulary)
    ours = what["model"] != STOCK
    parameters = folded_parameters(model.eval()) if ours else model.state_dict()
    precision = "float16" if size.device == "cuda" else "float32"
    words, languages = task.source_dictionary, models.LANGUAGES

    def translate(batch: dict[str, Any]) -> None:
        tokens = batch["net_input"]["src_tokens"].tolist()  # (B, S)
        sentences = [[words[i] for i in row if i >= words.nspecial] for row in tokens]
        limits = {"min_decoding_length": len(tokens[0]), "max_decoding_length": len(tokens[0])}
        translator.translate_batch(sentences, beam_size=BEAM, **limits)

    with tempfile.TemporaryDirectory() as name:
        for language in languages:
            words.save(f"{name}/dict.{language}.txt")
        place, options = Path(name), vars(stock.model)
        convert_stock(options, parameters, place, languages, place / "model", precision, ours)
        translator = open_translator(place / "model", size.device, precision, 4)
        return speeds(translate, batches, size)


def translations(results: Results) -> None:
    """Sentences as long as those of a news test in subwords, in both sorts of batches."""
    part, size = "translation", results.size
    drawn = 24 * np.exp(0.6 * np.random.default_rng(1).standard_normal(size.sentences))
    lengths = sorted(np.clip(drawn, 4, size.longest).astype(int).tolist(), reverse=True)
    starts = range(0, len(lengths), SENTENCES)
    sorts = {
        f"{SENTENCES} sentences": [lengths[i : i + SENTENCES] for i in starts],
        f"{TOKENS:,} tokens": by_tokens(lengths, TOKENS),
    }
    words = make_dictionary(size.vocabulary)
    for name, of_lengths in sorts.items():
        batches = [translation_batch(words, len(each), each[0], each[-1]) for each in of_lengths]
        for model, allowed in MODELS:
            by = partial(by_fairseq, batches=batches, size=size)
            results.measure(part, by, engine="fairseq", model=model, cuDNN=allowed, batch=name)
        for model, allowed in IN_CTRANSLATE2:
            by = partial(by_ctranslate2, batches=batches, size=size)
            results.measure(part, by, engine="CTranslate2", model=model, cuDNN=allowed, batch=name)


def trainings(results: Results, data: Path, compiled: bool) -> None:
    """Every model in every setting; stock fairseq before what is compared with it."""
    size = results.size
    for tokens, precision in size.trained:
        batches = read_batches(data, tokens, size)
        by = partial(train, batches=batches, size=size, compiled=compiled)
        for model, allowed in (*MODELS, ("mhe_conv", "never")):
            what = {"tokens": tokens, "precision": precision, "model": model, "cuDNN": allowed}
            results.measure("training", by, **what)


def run(args: argparse.Namespace) -> None:
    """Both parts."""
    if not args.cpu and not torch.cuda.is_available():
        raise UserError("torch sees no GPU here; for a dry run without a GPU add --cpu")
    out, size = output_folder(args.out), CPU if args.cpu else GPU
    data = args.data or HomeAssistant(out=out / "data").prepare()
    results = Results(out, size, time.monotonic() + 60 * args.minutes)
    trainings(results, data, args.compile)
    translations(results)


def main(argv: Sequence[str] | None = None) -> int:
    """Parse the options and run."""
    quieten_start_up()
    raw = argparse.RawDescriptionHelpFormatter
    parser = Parser(prog=PROGRAM, description=__doc__, formatter_class=raw)
    add = parser.add_argument
    add("--out", type=Path, default=Path("runs/gpu"), help="folder (default: %(default)s)")
    add("--data", type=Path, metavar="DATA", help="data folder (default: of the embedded corpus)")
    text = "what is not begun by then is left out (default: %(default)s)"
    add("--minutes", type=float, default=5, metavar="N", help=text)
    add("--compile", action="store_true", help="train with each layer by torch.compile")
    add("--cpu", action="store_true", help="a dry run on the CPU, in tiny sizes")
    return exit_status(PROGRAM, lambda: run(parser.parse_args(argv)))


if __name__ == "__main__":
    sys.exit(main())
