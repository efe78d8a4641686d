"""Translation by fairseq's beam search, as fairseq-generate does it, with one model in memory."""

import threading
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import torch
from fairseq import utils
from fairseq.dataclass.configs import GenerationConfig
from fairseq.tasks.translation import TranslationConfig, TranslationTask

from fairseq_mhe.common.errors import ErrorExit, UserError
from fairseq_mhe.deploy.engine import Engine, Hypothesis
from fairseq_mhe.deploy.trained import Trained
from fairseq_mhe.runs.decoding import Decoding


class FairseqEngine(Engine):
    """On a GPU where torch sees one; callers in several threads take turns."""

    name = "fairseq"

    def __init__(self, trained: Trained, int8: bool = False, cpu: bool = False) -> None:
        """Make the model ready to generate, in place.

        Raises:
            UserError: ``int8`` where there are no such products.
        """
        self._cuda = torch.cuda.is_available() and not cpu
        self._task = TranslationTask(TranslationConfig(), *trained.dictionaries)
        model: Any = trained.source.model
        model.int8_generation = int8
        if self._cuda:
            model.cuda()
        try:
            model.prepare_for_inference_(SimpleNamespace(generation=GenerationConfig()))
        except ErrorExit as error:
            raise UserError(error.message) from None
        self._model = model
        self._lock = threading.Lock()  # the masks and packed weights that a model keeps

    def translate(
        self, sentences: Sequence[Sequence[str]], decoding: Decoding, nbest: int
    ) -> list[list[Hypothesis]]:
        """As `Engine.translate`."""
        task = self._task
        settings = GenerationConfig(
            beam=decoding.beam,
            nbest=nbest,
            lenpen=decoding.lenpen,
            max_len_a=decoding.max_len_a,
            max_len_b=decoding.max_len_b,
        )
        tokens = [self._numbers(sentence) for sentence in sentences]
        dataset = task.build_dataset_for_inference(tokens, [len(each) for each in tokens])
        batch = dataset.collater([dataset[place] for place in range(len(tokens))])
        with self._lock:
            generator = task.build_generator([self._model], settings)
            if self._cuda:
                batch = utils.move_to_cuda(batch)
            results = task.inference_step(generator, [self._model], batch)
        found: list[list[Hypothesis]] = [[] for _ in tokens]
        for place, hypotheses in zip(batch["id"].tolist(), results, strict=True):
            found[place] = [self._hypothesis(each) for each in hypotheses[:nbest]]
        return found

    def _numbers(self, sentence: Sequence[str]) -> torch.Tensor:
        """(S,): the numbers of the subwords and of the end."""
        words = self._task.source_dictionary
        numbers = [words.index(word) for word in sentence]
        return torch.tensor([*numbers, words.eos()])

    def _hypothesis(self, found: dict[str, Any]) -> Hypothesis:
        text = self._task.target_dictionary.string(found["tokens"].int().cpu())
        return Hypothesis(text, float(found["score"]))
