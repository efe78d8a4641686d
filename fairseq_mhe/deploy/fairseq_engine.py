"""Translation of models for fairseq: by fairseq's beam search, or converted for CTranslate2."""

import contextlib
import importlib.util
import tempfile
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch
from fairseq import utils
from fairseq.dataclass.configs import GenerationConfig
from fairseq.tasks.translation import TranslationConfig, TranslationTask

from fairseq_mhe.common.errors import ErrorExit, UserError
from fairseq_mhe.common.system import exact_int8
from fairseq_mhe.convert.to_ctranslate2 import check_exact, convert
from fairseq_mhe.deploy.bundle import Bundle
from fairseq_mhe.deploy.ctranslate2_engine import CTranslate2Engine
from fairseq_mhe.deploy.engine import (
    AUTO,
    BF16,
    CTRANSLATE2,
    FAIRSEQ,
    FLOAT32,
    INT8,
    Hypothesis,
)
from fairseq_mhe.deploy.trained import Trained, open_trained, read_bundle
from fairseq_mhe.runs.decoding import Decoding


class FairseqEngine:
    """As fairseq-generate translates, on a GPU where torch sees one."""

    name = FAIRSEQ

    def __init__(self, trained: Trained, precision: str = FLOAT32, cpu: bool = False) -> None:
        """Make the model ready to generate, in place.

        Raises:
            UserError: ``precision`` where there are no such products.
        """
        self._cuda = torch.cuda.is_available() and not cpu
        self._task = TranslationTask(TranslationConfig(), *trained.dictionaries)
        model: Any = trained.source.model
        model.generation_precision = precision
        if self._cuda:
            model.cuda()
        try:
            model.prepare_for_inference_(SimpleNamespace(generation=GenerationConfig()))
        except ErrorExit as error:
            raise UserError(error.message) from None
        self._model = model

    def translate(
        self, sentences: Sequence[Sequence[str]], decoding: Decoding, nbest: int
    ) -> list[list[Hypothesis]]:
        """As every engine (see `engine`)."""
        task, words = self._task, self._task.source_dictionary
        settings = GenerationConfig(
            beam=decoding.beam,
            lenpen=decoding.lenpen,
            max_len_a=decoding.max_len_a,
            max_len_b=decoding.max_len_b,
        )
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


def load(
    model: Path | Bundle,
    data: Path | None,
    engine: str,
    precision: str,
    cpu: bool,
    threads: int | None,
) -> tuple[Trained, FairseqEngine | CTranslate2Engine]:
    """A bundle for fairseq, a run folder or a checkpoint with its engine; as `Translator.load`."""
    trained = read_bundle(model) if isinstance(model, Bundle) else open_trained(model, data)
    if engine == CTRANSLATE2:
        return trained, converted(trained, precision, cpu, threads)
    if engine == AUTO and _suits_ctranslate2(precision, cpu):
        with contextlib.suppress(UserError):  # CTranslate2 has no form for this model
            return trained, converted(trained, precision, cpu, threads)
    return trained, FairseqEngine(trained, precision, cpu)


def _suits_ctranslate2(precision: str, cpu: bool) -> bool:
    """Whether CTranslate2 is there for the device, and was measured to be the faster engine."""
    if precision == BF16 or importlib.util.find_spec("ctranslate2") is None:
        return False
    if cpu or not torch.cuda.is_available():
        return precision != INT8 or exact_int8()
    import ctranslate2

    return bool(ctranslate2.get_cuda_device_count())


def converted(
    trained: Trained, precision: str = FLOAT32, cpu: bool = False, threads: int | None = None
) -> CTranslate2Engine:
    """The engine of a model of ours, whose shared heads CTranslate2 keeps once.

    Raises:
        UserError: CTranslate2 is not installed, cannot hold the model, or does not give words the
            probabilities that fairseq gives them.
    """
    longest = trained.positions[1]
    with tempfile.TemporaryDirectory(prefix="fairseq-mhe-") as folder:
        model = Path(folder) / "model"
        languages = trained.text.languages
        convert(trained.source, trained.dictionary_folder, languages, model, "float32", True)
        exact = CTranslate2Engine(model, longest, cpu=True, threads=threads)
        check_exact(trained.source, trained.dictionaries, exact.translator)
        if precision != INT8 and (cpu or not torch.cuda.is_available()):
            return exact
        return CTranslate2Engine(model, longest, precision, cpu, threads)
