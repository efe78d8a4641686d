"""Training and translation on a GPU beside stock fairseq, on batches of real text: seven minutes.

    python scripts/gpu_bench.py                   # the embedded corpus
    python scripts/gpu_bench.py --multi30k TEXT   # first Multi30k (TEXT: as multi30k_bpe_en_de.sh)
    python scripts/gpu_bench.py --cpu             # a dry run in tiny sizes, without a GPU

Row base with 32,768 words: both corpora have fewer, and the others are never said. Nearly every
batch has a new shape, as in a real training. Stock fairseq trains by its own --optimizer adam; it
runs as its users get it, with cuDNN's attention allowed, and once more without. Each row is printed
when it is measured, and kept at once in results.json and results.md of --out, so that nothing is
lost when the time ends. What --minutes leaves no time for is left out, and says so.
"""

import argparse
import contextlib
import functools
import itertools
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
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
from fairseq_mhe.common.system import machine, software
from fairseq_mhe.common.tables import align
from fairseq_mhe.convert.fold import folded_parameters
from fairseq_mhe.convert.to_ctranslate2 import convert_stock, open_translator
from fairseq_mhe.fairseq_fixes import quieten_start_up
from fairseq_mhe.models.build import make_dictionary
from fairseq_mhe.prepare.data_folder import open_data
from gpu_check import every_kind, parity

PROGRAM = "gpu_bench.py"
COLUMNS = {
    "training": {
        "corpus": "",
        "tokens": ",",
        "precision": "",
        "model": "",
        "cuDNN": "",
        "ms": ".1f",
        "median": ".1f",
        "tokens/s": ",.0f",
        "kernels": ",.0f",
        "busy ms": ".1f",
        "waiting": ".0%",
        "times stock": ".2f",
        "without cuDNN": ".2f",
        "note": "",
    },
    "translation": {
        "engine": "",
        "model": "",
        "cuDNN": "",
        "batch": "",
        "sentences/s": ",.0f",
        "again": ",.0f",
        "times stock": ".2f",
        "without cuDNN": ".2f",
        "note": "",
    },
    "correctness": {"kind": "", "found": "", "holds": ""},
}
#: How fast a row is, and what is the same in rows that are compared.
_RATES = {"training": "tokens/s", "translation": "sentences/s"}
_SETTING = ("corpus", "tokens", "precision", "batch")
#: The columns that compare a row with stock fairseq, by what torch might choose there.
_COMPARED = {"allowed": "times stock", "off": "without cuDNN"}
BEAM = 5


@dataclass(frozen=True)
class Size:
    """How much is measured."""

    device: str
    row: str
    vocabulary: int
    tokens: tuple[int, ...]
    precisions: tuple[str, ...]
    warm_up: int
    updates: int
    profiled: int
    #: Sentences that are translated, in batches of so many sentences, or of so many tokens.
    sentences: int
    in_batch: int
    tokens_in_batch: int
    translated_in: str


GPU = Size(
    device="cuda",
    row="base",
    vocabulary=32_768,
    tokens=(4096, 16_384),
    precisions=("bf16", "fp16"),
    warm_up=20,
    updates=100,
    profiled=10,
    sentences=256,
    in_batch=32,
    tokens_in_batch=4096,
    translated_in="fp16",
)
CPU = Size(
    device="cpu",
    row="tiny",
    vocabulary=10_000,
    tokens=(256,),
    precisions=("float32",),
    warm_up=1,
    updates=3,
    profiled=1,
    sentences=6,
    in_batch=3,
    tokens_in_batch=128,
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

    def add(self, part: str, row: dict[str, Any]) -> None:
        """Keep a row, beside stock fairseq's of the same setting, and print it."""
        rate = _RATES.get(part, "")
        stock = [each for each in self.rows[part] if rate in each and _is_stock(each)]
        for other in stock if rate in row else []:
            if all(other.get(name) == row.get(name) for name in _SETTING):
                name = _COMPARED[other["cuDNN"]]
                row.setdefault(name, row[rate] / other[rate])
        self.rows[part].append(row)
        say(f"{part}: " + ", ".join(f"{k} {v}" for k, v in _shown(part, row).items() if v))
        self.write()

    def write(self) -> None:
        """Both files, whole."""
        facts = {**machine(self.size.device), **software()}
        write_json(self.out / "results.json", {"facts": facts, **self.rows})
        lines = [f"- {name}: {value}" for name, value in facts.items()]
        text = ["# Training and translation beside stock fairseq", "", *lines]
        for part, rows in self.rows.items():
            shown = [list(_shown(part, row).values()) for row in rows]
            text += ["", f"## {part.capitalize()}", "", align(list(COLUMNS[part]), shown)]
        write_text(self.out / "results.md", "\n".join(text) + "\n")

    def late(self, part: str, what: dict[str, Any], seconds: float) -> bool:
        """Whether there is no time for what takes some ``seconds``; a row says so."""
        if time.monotonic() + seconds < self.end:
            return False
        self.add(part, {**what, "note": "no time left"})
        return True


def _is_stock(row: dict[str, Any]) -> bool:
    """Whether a row is stock fairseq's, as users get it or without cuDNN."""
    return row["model"] == STOCK and row["cuDNN"] in _COMPARED and not row.get("note")


def _shown(part: str, row: dict[str, Any]) -> dict[str, str]:
    return {
        name: format(row[name], form) if row.get(name) is not None else ""
        for name, form in COLUMNS[part].items()
    }


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


def prepared(started: dict[str, tuple[Path, Any]], out: Path) -> dict[str, Path]:
    """The data folders of `start_preparing`, once they are whole."""
    failed = [name for name, (_, process) in started.items() if process.wait()]
    if failed:
        logs = ", ".join(str(out / f"{name}.log") for name in failed)
        raise UserError(f"{', '.join(failed)} could not be prepared: see {logs}")
    return {name: folder for name, (folder, _) in started.items()}


def start_preparing(out: Path, multi30k: Path | None) -> dict[str, tuple[Path, Any]]:
    """Commands that prepare the corpora meanwhile: name -> (data folder, process)."""
    commands = {"embedded": ["home_assistant"]}
    if multi30k is not None:
        commands = {"multi30k": ["multi30k_bpe", "--folder", str(multi30k)], **commands}
    started = {}
    for name, (module, *words) in commands.items():
        log, folder = out / f"{name}.log", out / "data" / name
        line = [sys.executable, "-m", f"fairseq_mhe.prepare.corpora.{module}"]
        with log.open("w", encoding="utf-8") as file:
            process = subprocess.Popen(
                [*line, *words, "--out", str(folder)], stdout=file, stderr=subprocess.STDOUT
            )
        started[name] = folder, process
    return started


def read_pairs(folder: Path, size: Size) -> LanguagePairDataset:
    """The training pairs of a data folder, with a dictionary that is as large as the row's."""
    data = open_data(folder)
    words = make_dictionary(size.vocabulary)
    sides: list[Any] = []
    for language in data.languages:
        prefix = data.binary / f"train.{'-'.join(data.languages)}.{language}"
        tokens = data_utils.load_indexed_dataset(str(prefix), words)
        sides += [tokens, tokens.sizes, words]
    return LanguagePairDataset(*sides)


def read_batches(pairs: LanguagePairDataset, tokens: int, count: int) -> list[dict[str, Any]]:
    """The first ``count`` batches of ``tokens`` of shuffled epochs, which repeat."""
    with data_utils.numpy_seed(1):
        indices = pairs.ordered_indices()
    epoch = pairs.batch_by_size(indices, max_tokens=tokens, required_batch_size_multiple=8)
    shuffled = np.random.default_rng(1).permutation(len(epoch))
    chosen = itertools.islice(itertools.cycle(shuffled), count)
    return [pairs.collater([pairs[index] for index in epoch[number]]) for number in chosen]


def make_trainer(model: str, precision: str, tokens: int, size: Size) -> Trainer:
    """fairseq's, as the command line of each makes it."""
    settings = Settings(row=size.row, device=size.device, threads=1, vocabulary=size.vocabulary)
    words = ["--max-tokens", str(tokens), "--save-dir", os.devnull]
    cfg = models.configuration(model, settings, precision, words)
    task, built = models.build(cfg, size.vocabulary)
    return Trainer(cfg, task, built, task.build_criterion(cfg.criterion))


def update_times(trainer: Trainer, batches: Sequence[Any], size: Size) -> list[float]:
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


def profile(trainer: Trainer, batches: Sequence[Any], size: Size) -> dict[str, float]:
    """Of an update: kernels that run on the GPU, and milliseconds in which it computes."""
    if size.device == "cpu":
        trainer.train_step([batches[0]])
        return {}
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as profiler:
        update_times(trainer, batches, size)
    cuda = torch.autograd.DeviceType.CUDA
    events = [event for event in profiler.events() or () if event.device_type == cuda]
    busy = sum(event.time_range.elapsed_us() for event in events) / 1000
    return {"kernels": len(events) / len(batches), "busy ms": busy / len(batches)}


def train(
    results: Results, what: dict[str, Any], batches: Sequence[Any], compiled: bool = False
) -> None:
    """Measure one model in one setting: a row."""
    size = results.size
    measured = batches[size.warm_up : size.warm_up + size.updates]
    with cudnn(what["cuDNN"] != "off"):
        trainer = make_trainer(what["model"], what["precision"], what["tokens"], size)
        start = time.monotonic()
        if compiled:
            # A layer is one of the cases of its class's code, of which there may be 8 otherwise.
            torch._dynamo.config.recompile_limit = 128
            for layer in (*trainer.model.encoder.layers, *trainer.model.decoder.layers):
                layer.compile(dynamic=True)
        update_times(trainer, batches[: size.warm_up], size)
        note = f"compiled, warm-up {time.monotonic() - start:.0f} s" if compiled else ""
        times = update_times(trainer, measured, size)
        found: dict[str, Any] = {}
        try:
            found = profile(trainer, measured[: size.profiled], size)
            if found:
                found["waiting"] = 1 - found["busy ms"] / statistics.mean(times[: size.profiled])
        except Exception as error:  # the times are worth more
            note += _told(error)
    found |= {"ms": statistics.mean(times), "median": statistics.median(times), "note": note}
    found["tokens/s"] = sum(batch["ntokens"] for batch in measured) / sum(times) * 1000
    results.add("training", {**what, **found})


#: Models, and what torch may choose for stock fairseq's attention; ours never takes cuDNN's.
_STOCK_FIRST = ((STOCK, "allowed"), (STOCK, "off"), ("mha", "never"), ("mhe_mul", "never"))


def trainings(results: Results, corpus: str, data: Path, tokens: int, precision: str) -> None:
    """Every model in one setting; stock fairseq before what is compared with it."""
    size = results.size
    batches = read_batches(read_pairs(data, size), tokens, size.warm_up + size.updates)
    for model, allowed in (*_STOCK_FIRST, ("mhe_conv", "never")):
        what = {"corpus": corpus, "tokens": tokens, "precision": precision}
        what |= {"model": model, "cuDNN": allowed}
        if not results.late("training", what, 25):
            attempt(results, "training", what, functools.partial(train, batches=batches))


def attempt(
    results: Results, part: str, what: dict[str, Any], measure: Callable[..., None]
) -> None:
    """Measure; a failure is a row, and the next ones are measured all the same."""
    try:
        measure(results, what)
    except Exception as error:  # of CUDA, a compiler or a library
        results.add(part, {**what, "note": _told(error)})
    if torch.cuda.is_available():
        torch.cuda.empty_cache()


def _told(error: BaseException) -> str:
    """The first error of a chain in a line: fairseq's attempt to keep a failed training fails."""
    while error.__context__ is not None:
        error = error.__context__
    return f"{type(error).__name__}: {' '.join(str(error).split())[:200]}"


def source_lengths(size: Size) -> list[int]:
    """Lengths as those of a news test in subwords, as fairseq sorts them."""
    longest = 100 if size.device == "cuda" else 8
    drawn = 24 * np.exp(0.6 * np.random.default_rng(1).standard_normal(size.sentences))
    return sorted(np.clip(drawn, 4, longest).astype(int).tolist(), reverse=True)


def by_tokens(lengths: Sequence[int], most: int) -> list[list[int]]:
    """Sorted sentences in batches of at most ``most`` tokens, padding included."""
    found: list[list[int]] = [[]]
    for length in lengths:
        if found[-1] and found[-1][0] * (len(found[-1]) + 1) > most:
            found.append([])
        found[-1].append(length)
    return found


def sources(batches: Sequence[Sequence[int]], size: Size) -> list[dict[str, Any]]:
    """Random sentences: fairseq's batches, each as long as its first sentence."""
    words = make_dictionary(size.vocabulary)
    return [
        translation_batch(words, len(batch), batch[0], seed) for seed, batch in enumerate(batches)
    ]


def translate_by_fairseq(
    results: Results, what: dict[str, Any], batches: Sequence[dict[str, Any]]
) -> None:
    """All batches, twice: first with every shape new. Outputs are as long as their sources."""
    size = results.size
    settings = Settings(row=size.row, device=size.device, threads=1, vocabulary=size.vocabulary)
    with cudnn(what["cuDNN"] != "off"), torch.no_grad():
        cfg = models.configuration(what["model"], settings, size.translated_in)
        cfg.generation.beam, cfg.generation.max_len_a = BEAM, 0
        task, model = models.build(cfg, size.vocabulary)
        model = model.to(size.device, DTYPES[size.translated_in]).eval()
        model.prepare_for_inference_(cfg)
        seconds = []
        for turn in (batches[-1:], batches, batches):
            wait(size)
            start = time.perf_counter()
            for batch in turn:
                limits = cfg.generation
                limits.min_len = limits.max_len_b = batch["net_input"]["src_tokens"].size(1) - 1
                search = task.build_generator([model], limits)
                given = utils.move_to_cuda(batch) if size.device == "cuda" else batch
                task.inference_step(search, [model], given)
            wait(size)
            seconds.append(time.perf_counter() - start)
    _add_translation(results, what, batches, seconds[1:])


def translate_by_ctranslate2(
    results: Results, what: dict[str, Any], batches: Sequence[dict[str, Any]]
) -> None:
    """The same by CTranslate2: the model of an export, with shared heads kept once."""
    size = results.size
    settings = Settings(row=size.row, device=size.device, threads=1, vocabulary=size.vocabulary)
    stock = models.configuration(STOCK, settings, "float32")
    precision = "float16" if size.device == "cuda" else "float32"
    task, model = models.build(
        models.configuration(what["model"], settings, "float32"), size.vocabulary
    )
    of_stock = what["model"] == STOCK
    parameters = model.state_dict() if of_stock else folded_parameters(model.eval())
    words = task.source_dictionary
    with tempfile.TemporaryDirectory() as name:
        for language in models.LANGUAGES:
            words.save(f"{name}/dict.{language}.txt")
        folder = Path(name) / "model"
        convert_stock(
            vars(stock.model),
            parameters,
            Path(name),
            models.LANGUAGES,
            folder,
            precision,
            not of_stock,
        )
        translator = open_translator(folder, size.device, precision, 4)
        seconds = []
        for turn in (batches[-1:], batches, batches):
            start = time.perf_counter()
            for batch in turn:
                tokens = batch["net_input"]["src_tokens"]  # (B, S)
                sentences = [[words[i] for i in row if i >= words.nspecial] for row in tokens]
                length = tokens.size(1)
                limits = {"min_decoding_length": length, "max_decoding_length": length}
                translator.translate_batch(sentences, beam_size=BEAM, **limits)
            seconds.append(time.perf_counter() - start)
    _add_translation(results, what, batches, seconds[1:])


def _add_translation(
    results: Results, what: dict[str, Any], batches: Sequence[Any], seconds: Sequence[float]
) -> None:
    count = sum(len(batch["net_input"]["src_tokens"]) for batch in batches)
    first, again = (count / each for each in seconds)
    results.add("translation", {**what, "sentences/s": first, "again": again})


def translations(results: Results) -> None:
    """Both sorts of batches; stock fairseq before what is compared with it."""
    size = results.size
    lengths = source_lengths(size)
    few = [lengths[i : i + size.in_batch] for i in range(0, len(lengths), size.in_batch)]
    sorts = {
        f"{size.in_batch} sentences": few,
        f"{size.tokens_in_batch:,} tokens": by_tokens(lengths, size.tokens_in_batch),
    }
    rows = [("fairseq", *each) for each in _STOCK_FIRST]
    rows += [("CTranslate2", model, "never") for model in (STOCK, "mha", "mhe_mul")]
    for batch, lengths_of in sorts.items():
        batches = sources(lengths_of, size)
        for engine, model, allowed in rows:
            what = {"engine": engine, "model": model, "cuDNN": allowed, "batch": batch}
            measure = translate_by_fairseq if engine == "fairseq" else translate_by_ctranslate2
            if not results.late("translation", what, 15):
                by = functools.partial(measure, batches=batches)
                attempt(results, "translation", what, by)


def compiled_layers(results: Results, corpus: str, data: Path) -> None:
    """Training once more with each layer by torch.compile, on the same batches."""
    size = results.size
    batches = read_batches(read_pairs(data, size), size.tokens[0], size.warm_up + size.updates)
    for model, allowed in (("mhe_mul", "never"), (STOCK, "off")):
        what = {"corpus": corpus, "tokens": size.tokens[0], "precision": size.precisions[0]}
        what |= {"model": model, "cuDNN": allowed}
        if not results.late("training", {**what, "note": "compiled"}, 60):
            by = functools.partial(train, batches=batches, compiled=True)
            attempt(results, "training", what, by)


def run(args: argparse.Namespace) -> None:
    """All parts, the most important first."""
    if not args.cpu and not torch.cuda.is_available():
        raise UserError("torch sees no GPU here; for a dry run without a GPU add --cpu")
    out, size = output_folder(args.out), CPU if args.cpu else GPU
    results = Results(out, size, time.monotonic() + 60 * args.minutes)
    started = start_preparing(out, args.multi30k)
    for _, kind, found, holds in every_kind(parity, size.device):
        results.add("correctness", {"kind": kind, "found": found, "holds": holds})
    corpora = prepared(started, out)
    (first, data), *others = corpora.items()
    settings = [*itertools.product(size.tokens, size.precisions)]
    for tokens, precision in settings[:3]:
        trainings(results, first, data, tokens, precision)
    translations(results)
    for corpus, folder in others:
        trainings(results, corpus, folder, *settings[0])
    for tokens, precision in settings[3:]:
        trainings(results, first, data, tokens, precision)
    if not args.cpu:  # last, since nothing bounds the time of compiling
        compiled_layers(results, first, data)


def main(argv: Sequence[str] | None = None) -> int:
    """Parse the options and run."""
    quieten_start_up()
    raw = argparse.RawDescriptionHelpFormatter
    parser = Parser(prog=PROGRAM, description=__doc__, formatter_class=raw)
    add = parser.add_argument
    add("--out", type=Path, default=Path("runs/gpu_bench"), help="folder (default: %(default)s)")
    add("--multi30k", type=Path, metavar="TEXT", help="folder of Multi30k's preprocessed text")
    text = "what is not begun by then is left out (default: %(default)s)"
    add("--minutes", type=float, default=7, metavar="N", help=text)
    add("--cpu", action="store_true", help="a dry run on the CPU, in tiny sizes")
    return exit_status(PROGRAM, lambda: run(parser.parse_args(argv)))


if __name__ == "__main__":
    sys.exit(main())
