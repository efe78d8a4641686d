"""From a bundle, a run or a checkpoint to the parts of a `Translator`, the engine among them."""

import importlib.util
from pathlib import Path

import torch

from fairseq_mhe.common.errors import UserError
from fairseq_mhe.common.system import cpu_flags
from fairseq_mhe.deploy import fairseq_format
from fairseq_mhe.deploy.bundle import Bundle, is_bundle, open_bundle
from fairseq_mhe.deploy.ctranslate2_engine import CTranslate2Engine
from fairseq_mhe.deploy.engine import Engine
from fairseq_mhe.deploy.fairseq_engine import FairseqEngine
from fairseq_mhe.deploy.trained import Trained, open_trained
from fairseq_mhe.prepare.text_processing import TextProcessing
from fairseq_mhe.runs.decoding import Decoding

AUTO = "auto"
ENGINES = (AUTO, FairseqEngine.name, CTranslate2Engine.name)
Parts = tuple[TextProcessing, Engine, Decoding, tuple[int, int], str]


def load_parts(
    path: Path,
    data: Path | None,
    direction: str | None,
    engine: str,
    int8: bool,
    cpu: bool,
    threads: int | None,
) -> Parts:
    """What `Translator` is made of; the arguments and errors are those of `Translator.load`."""
    if engine not in ENGINES:
        raise UserError(f"unknown engine {engine!r}; choose of: {', '.join(ENGINES)}")
    if not path.exists():
        raise UserError(f"{path} does not exist: give a bundle, a run folder or a checkpoint")
    if not is_bundle(path):
        trained = open_trained(path, data)
        _check_direction(path, trained.text.languages, direction)
        return _parts(trained, _engine_of(trained, engine, int8, cpu, threads), str(path))
    if data is not None:
        raise UserError(f"{path} is a bundle, which needs no data folder: leave it out")
    bundle = open_bundle(path)
    _check_direction(path, bundle.languages, direction)
    if bundle.format == "fairseq":
        trained = fairseq_format.read(bundle)
        return _parts(trained, _engine_of(trained, engine, int8, cpu, threads), str(path))
    chosen = _engine_in(bundle, engine, int8, cpu, threads)
    return bundle.text, chosen, bundle.decoding, bundle.positions, str(path)


def _parts(trained: Trained, engine: Engine, name: str) -> Parts:
    return trained.text, engine, trained.decoding, trained.positions, name


def _check_direction(path: Path, languages: tuple[str, str], direction: str | None) -> None:
    found = "-".join(languages)
    if direction not in (None, found):
        raise UserError(f"{path} translates {found}, not {direction}: give another model")


def _engine_of(trained: Trained, engine: str, int8: bool, cpu: bool, threads: int | None) -> Engine:
    """The engine of a model of ours."""
    if engine == CTranslate2Engine.name:
        return CTranslate2Engine.converted(trained, int8, cpu, threads)
    on_cpu = cpu or not torch.cuda.is_available()  # where CTranslate2 was measured to be faster
    serves = importlib.util.find_spec("ctranslate2") is not None
    if engine == AUTO and on_cpu and serves and (not int8 or exact_int8()):
        try:
            return CTranslate2Engine.converted(trained, int8, cpu, threads)
        except UserError:
            pass  # it has no form for this model
    return FairseqEngine(trained, int8, cpu)


def exact_int8() -> bool:
    """Whether CTranslate2 adds products of 8-bit integers up without cutting them off.

    On x86 without VNNI, oneDNN adds two products up in 16 bits
    (https://uxlfoundation.github.io/oneDNN/dev_guide_int8_computations.html).
    """
    flags = cpu_flags()
    return "avx2" not in flags or not flags.isdisjoint(("avx512_vnni", "avx_vnni"))


def _engine_in(bundle: Bundle, engine: str, int8: bool, cpu: bool, threads: int | None) -> Engine:
    """The engine that reads a bundle of another program's weights."""
    if bundle.format == CTranslate2Engine.name and engine in (AUTO, bundle.format):
        return CTranslate2Engine(bundle.folder, bundle.positions[1], int8, cpu, threads)
    if bundle.format == "huggingface":
        raise UserError(
            f"{bundle.folder} is a bundle for transformers: load it with AutoTokenizer and "
            "AutoModelForSeq2SeqLM, as its example.py does, or export the model with "
            "--format fairseq"
        )
    raise UserError(
        f"{bundle.folder} is a bundle for {bundle.format}, which {engine!r} does not read: "
        "leave --engine out, or export the model with --format fairseq"
    )
