"""Translation of models for fairseq: by fairseq's beam search, or converted for CTranslate2."""

import importlib.util
import tempfile
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import torch
from fairseq import utils
from fairseq.dataclass.configs import GenerationConfig

from fairseq_mhe.common.errors import ErrorExit, UserError
from fairseq_mhe.common.system import exact_int8
from fairseq_mhe.convert.to_ctranslate2 import check_exact, convert
from fairseq_mhe.deploy.ctranslate2_engine import CTranslate2Engine, Hypothesis
from fairseq_mhe.deploy.trained import Trained
from fairseq_mhe.runs.decoding import Decoding


class FairseqEngine:
    """As fairseq-generate translates, on a GPU where torch sees one; changes the model in place."""

    name = "fairseq"

    def __init__(self, trained: Trained, precision: str, cpu: bool) -> None:
        self._cuda = torch.cuda.is_available() and not cpu
        self._task = trained.task
        self._model = model = cast(Any, trained.source.model)
        model.generation_precision = precision
        if self._cuda:
            model.cuda()
        try:
            model.prepare_for_inference_(SimpleNamespace(generation=GenerationConfig()))
        except ErrorExit as error:
            raise UserError(error.message) from None

    def translate(
        self, sentences: Sequence[Sequence[str]], decoding: Decoding, nbest: int
    ) -> list[list[Hypothesis]]:
        """The ``nbest`` hypotheses of each sentence of a batch, without its end, best first."""
        task, words = self._task, self._task.source_dictionary
        names = ("beam", "lenpen", "max_len_a", "max_len_b")
        settings = GenerationConfig(**{name: getattr(decoding, name) for name in names})
        tokens = [torch.tensor([*map(words.index, each), words.eos()]) for each in sentences]
        dataset = task.build_dataset_for_inference(tokens, [len(each) for each in tokens])
        batch = dataset.collater([dataset[index] for index in range(len(tokens))])
        if self._cuda:
            batch = utils.move_to_cuda(batch)
        generator = task.build_generator([self._model], settings)
        results = task.inference_step(generator, [self._model], batch)
        translations: list[list[Hypothesis]] = [[] for _ in sentences]
        for index, hypotheses in zip(batch["id"].tolist(), results, strict=True):
            for best in hypotheses[:nbest]:
                text = task.target_dictionary.string(best["tokens"].int().cpu())
                translations[index].append((text, float(best["score"])))
        return translations


def open_engine(
    trained: Trained, engine: str, precision: str, cpu: bool, threads: int | None
) -> FairseqEngine | CTranslate2Engine:
    """The engine for a model that fairseq runs; options as of `Translator.load`."""
    if engine == "ctranslate2" or (engine == "auto" and _suits_ctranslate2(precision, cpu)):
        try:
            with tempfile.TemporaryDirectory(prefix="fairseq-mhe-") as folder:
                model = Path(folder) / "model"
                write_ctranslate2(trained, model, threads)
                longest = trained.positions[1]
                return CTranslate2Engine(model, longest, precision, cpu, threads)
        except UserError:  # CTranslate2 cannot hold the model
            if engine == "ctranslate2":
                raise
    return FairseqEngine(trained, precision, cpu)


def write_ctranslate2(trained: Trained, folder: Path, threads: int | None = None) -> None:
    """Write the model in CTranslate2's format, in float32, heads that are shared once.

    Raises UserError where CTranslate2 cannot hold it, or gives words other probabilities.
    """
    source = trained.source
    convert(source, trained.folder, trained.text.languages, folder, "float32", True)
    exact = CTranslate2Engine(folder, trained.positions[1], "float32", True, threads)
    check_exact(source, trained.task, exact.translator)


def _suits_ctranslate2(precision: str, cpu: bool) -> bool:
    """Whether CTranslate2 is there for the device, and was measured to be the faster engine."""
    if precision == "bf16" or importlib.util.find_spec("ctranslate2") is None:
        return False
    if cpu or not torch.cuda.is_available():
        return precision != "int8" or exact_int8()
    import ctranslate2

    return bool(ctranslate2.get_cuda_device_count())
