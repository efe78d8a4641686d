"""Open trained models that fairseq can run, write them as bundles, and translate with them."""

import contextlib
import hashlib
import importlib.util
import json
import os
import shutil
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from fairseq import utils
from fairseq.tasks.translation import TranslationTask
from safetensors import safe_open
from safetensors.torch import save_model

from fairseq_mhe.attention import KINDS
from fairseq_mhe.checkpoints.checkpoint import Source, open_source, plain, source_of
from fairseq_mhe.common.errors import UserError
from fairseq_mhe.common.files import (
    check_no_colon,
    new_folder,
    read_json,
    sha256,
    write_json,
)
from fairseq_mhe.common.system import installed
from fairseq_mhe.convert.compare import task_of
from fairseq_mhe.convert.to_ctranslate2 import convert_source
from fairseq_mhe.deploy.bundle import Bundle, check_sums, write_sums
from fairseq_mhe.deploy.ctranslate2_engine import (
    NOT_FINITE,
    CTranslate2Engine,
    NBest,
    Sentences,
    Translation,
    exact_int8,
)
from fairseq_mhe.models.architectures import MODEL_NAME
from fairseq_mhe.prepare.data_folder import DataFolder, open_data
from fairseq_mhe.prepare.text_processing import TextProcessing
from fairseq_mhe.runs.decoding import Decoding
from fairseq_mhe.runs.job import Job, read_job
from fairseq_mhe.runs.recipes import recipe

#: Files of a bundle of the format fairseq, beside its dictionaries dict.LANG.txt.
WEIGHTS, OPTIONS = "model.safetensors", "config.json"


@dataclass(frozen=True)
class Trained:
    """A trained model in float32, with what its use and export need."""

    source: Source
    text: TextProcessing
    task: TranslationTask
    data: DataFolder  # of a bundle: its folder, which holds the dictionaries alone
    decoding: Decoding
    run: Job | None = None

    @property
    def positions(self) -> tuple[int, int]:
        """The most tokens that a source and a target may have, </s> included."""
        return self.source.model.max_positions()


def open_trained(path: Path, folder: Path | None = None) -> Trained:
    """Open a run folder, or a checkpoint with its data ``folder``; UserError if they do not fit."""
    if not path.exists():
        raise UserError(f"{path} does not exist: give the path of a trained model")
    run = read_job(path) if path.is_dir() else None
    if run and not run.model.exists():
        raise run.unfinished(run.model.name)
    source = open_source(path)
    if run:
        data = run.open_data(folder)
    elif folder:
        data = open_data(folder)
    else:
        raise UserError(f"give the data folder that {path} was trained on (--data)")
    decoding = run.decoding if run else recipe(source.row).decoding
    is_known = run is not None  # a run knows the fingerprint of its data
    task = task_of(data, source, is_known=is_known)
    return Trained(source, data.processing, task, data, decoding, run)


def read_bundle(bundle: Bundle) -> Trained:
    """Open a bundle of the format fairseq, whose checksums `open_bundle` has compared.

    Raises UserError for a kind of attention that is not registered.
    """
    folder = bundle.folder
    check_no_colon(folder)
    data = DataFolder(folder, bundle.text.languages)
    with safe_open(folder / WEIGHTS, "pt") as stored:
        weights = {name: stored.get_tensor(name) for name in stored.keys()}  # noqa: SIM118
        for name, stored_name in (stored.metadata() or {}).items():
            weights[name] = weights[stored_name]
    options = {**read_json(folder / OPTIONS), "_name": MODEL_NAME}
    source = source_of(folder / WEIGHTS, {"cfg": {"model": options}, "model": weights})
    task = task_of(data, source, is_known=True)
    return Trained(source, bundle.text, task, data, bundle.decoding)


def write_fairseq(trained: Trained, folder: Path) -> None:
    """Write model.safetensors, config.json with the model's options, and both dictionaries."""
    folder.mkdir()
    save_model(trained.source.model, str(folder / WEIGHTS))  # tied weights once
    write_json(folder / OPTIONS, plain(trained.source.options))
    shutil.copymode(folder / OPTIONS, folder / WEIGHTS)  # else only the owner may read
    for language in trained.text.languages:
        name = f"dict.{language}.txt"
        shutil.copyfile(trained.data.binary / name, folder / name)


class FairseqEngine:
    """Translates like fairseq-generate, on a GPU if torch sees one; changes the model in place."""

    name = "fairseq"

    def __init__(self, trained: Trained, precision: str, cpu: bool) -> None:
        self._cuda = torch.cuda.is_available() and not cpu
        self._task, self._model = trained.task, trained.source.model
        if precision == "fp16":
            if not self._cuda:
                raise UserError("fp16 is for a GPU: choose float32, bf16 or int8")
            self._model.half()
        else:
            self._model.generation_precision = precision
        if self._cuda:
            self._model.cuda()
        self._model.make_generation_fast_()

    def translate(self, sentences: Sentences, decoding: Decoding, nbest: int) -> NBest:
        """Return the ``nbest`` hypotheses of each sentence of a batch, best first, without </s>."""
        task, dictionary = self._task, self._task.source_dictionary
        tokens = []
        for sentence in sentences:
            ids = [*map(dictionary.index, sentence), dictionary.eos()]
            tokens.append(torch.tensor(ids))
        dataset = task.build_dataset_for_inference(tokens, list(map(len, tokens)))
        batch = dataset.collater(list(dataset))
        if self._cuda:
            batch = utils.move_to_cuda(batch)
        generator = task.build_generator([self._model], decoding)
        try:
            results = task.inference_step(generator, [self._model], batch)
        except AssertionError:  # the search has found no hypothesis with a score
            raise UserError(NOT_FINITE) from None
        translations: NBest = [[] for _ in sentences]
        for index, hypotheses in zip(batch["id"].tolist(), results, strict=True):
            for hypothesis in hypotheses[:nbest]:
                text = task.target_dictionary.string(hypothesis["tokens"].cpu())
                translations[index].append(Translation(text, float(hypothesis["score"])))
        return translations


def open_engine(
    trained: Trained, engine: str, precision: str, cpu: bool, threads: int | None
) -> FairseqEngine | CTranslate2Engine:
    """Return an engine for a model that fairseq can run; the options are `Translator.load`'s."""
    required = engine == "ctranslate2"
    if required or (engine == "auto" and _suits_ctranslate2(precision, cpu)):
        try:
            with _converted(trained) as model:
                longest = trained.positions[1]
                return CTranslate2Engine(model, longest, precision, cpu, threads)
        except UserError:  # CTranslate2 cannot hold or load the model, or is not exact
            if required:
                raise
    if threads:
        torch.set_num_threads(threads)
    return FairseqEngine(trained, precision, cpu)


@contextlib.contextmanager
def _converted(trained: Trained) -> Iterator[Path]:
    """Give the block the model in CTranslate2's format, which the user's cache keeps.

    The conversion and its check take seconds. Without a writable cache they are made each time, and
    for a user's own kind, since the class may have changed.
    """
    cache = Path(os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache"))
    cache /= "fairseq-mhe"
    with contextlib.suppress(OSError):
        cache.mkdir(parents=True, exist_ok=True)
    modules = [KINDS[kind].__module__ for kind in trained.source.attention.values()]
    is_ours = all(module.startswith("fairseq_mhe.") for module in modules)
    with tempfile.TemporaryDirectory(prefix="fairseq-mhe-") as temporary:
        folder = cache if is_ours and os.access(cache, os.W_OK) else Path(temporary)
        model = folder / f"ctranslate2-{_digest(trained)}"
        if not _is_whole(model):
            shutil.rmtree(model, ignore_errors=True)
            try:
                with new_folder(model) as part:  # reports a full disk
                    write_ctranslate2(trained, part)
                    write_sums(part)
            except UserError:
                if not _is_whole(model):  # another process has not written it meanwhile
                    raise
        yield model


def _is_whole(model: Path) -> bool:
    try:
        check_sums(model)
    except (UserError, OSError):
        return False
    return True


def _digest(trained: Trained) -> str:
    """Return a hash of all that a conversion depends on."""
    names = (f"dict.{language}.txt" for language in trained.text.languages)
    files = [trained.source.path, *(trained.data.binary / name for name in names)]
    facts: list[Any] = [sha256(path) for path in files]
    facts += [plain(trained.source.options), installed(("ctranslate2", "fairseq-mhe"))]
    text = json.dumps(facts, sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:32]


def write_ctranslate2(trained: Trained, folder: Path) -> None:
    """Write a CTranslate2 model in float32, equal heads once; UserError if it is not exact."""
    convert_source(trained.source, trained.task, trained.data, folder, shared_heads=True)


def _suits_ctranslate2(precision: str, cpu: bool) -> bool:
    """Whether CTranslate2 is installed, runs on the device, and was measured to be faster there."""
    if precision == "bf16" or importlib.util.find_spec("ctranslate2") is None:
        return False
    if cpu or not torch.cuda.is_available():
        return precision != "int8" or exact_int8()
    import ctranslate2

    return bool(ctranslate2.get_cuda_device_count())
