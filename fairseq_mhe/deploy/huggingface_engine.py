"""Translation by transformers: a model in its form, or one of ours, which is converted first."""

from __future__ import annotations

import contextlib
import importlib.util
import sys
import tempfile
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from fairseq_mhe.common.errors import UserError
from fairseq_mhe.deploy import huggingface_format
from fairseq_mhe.deploy.bundle import ADVICE
from fairseq_mhe.deploy.engine import Engine, Hypothesis, most_subwords
from fairseq_mhe.deploy.tokenizer_json import Subwords
from fairseq_mhe.deploy.trained import Trained
from fairseq_mhe.models.packed import int8_available, pack_linears
from fairseq_mhe.runs.recipes import Decoding

#: Logits that are looked at together when hypotheses are scored.
_TOGETHER = 2**23


class HuggingFaceEngine(Engine):
    """On a GPU where torch sees one; callers in several threads take turns."""

    name = "huggingface"

    def __init__(
        self, folder: Path, subword: str, longest: int, int8: bool = False, cpu: bool = False
    ) -> None:
        """Load the model in ``folder``.

        Args:
            subword: the kind of subwords, bpe or sentencepiece.
            longest: tokens of a translation at most, its end included.

        Raises:
            UserError: transformers is not installed or cannot read it, its files do not fit
                together, or ``int8`` where there are no such products.
        """
        self._cuda = torch.cuda.is_available() and not cpu
        if int8 and (self._cuda or not int8_available()):
            raise UserError("int8 is for an x86 processor: leave --int8 out, or give --cpu")
        transformers = import_transformers()
        self._subwords = Subwords(folder, subword)
        self._model = _load(transformers, folder, len(self._subwords))
        self._generation = transformers.GenerationConfig
        if int8:
            pack_linears(self._model, int8=True)
        if self._cuda:
            self._model.cuda()
        self._longest = longest
        self._lock = threading.Lock()  # generate changes what the model remembers

    @classmethod
    def converted(
        cls, trained: Trained, int8: bool = False, cpu: bool = False
    ) -> HuggingFaceEngine:
        """The engine of a model of ours.

        Raises:
            UserError: a package is not installed, or no class of transformers' holds the model.
        """
        with tempfile.TemporaryDirectory(prefix="fairseq-mhe-") as folder:
            huggingface_format.write(trained, Path(folder))
            longest = trained.positions[1]
            return cls(Path(folder), trained.text.model.kind, longest, int8, cpu)

    def translate(
        self, sentences: Sequence[Sequence[str]], decoding: Decoding, nbest: int
    ) -> list[list[Hypothesis]]:
        """As `Engine.translate`."""
        config = self._model.config
        tokens = [[*map(self._subwords.number, each), config.eos_token_id] for each in sentences]
        longest = max(map(len, tokens))
        batch = torch.tensor(
            [[*each, *[config.pad_token_id] * (longest - len(each))] for each in tokens]
        )  # (B, S)
        batch = batch.cuda() if self._cuda else batch
        inputs = {"input_ids": batch, "attention_mask": batch.ne(config.pad_token_id).long()}
        limit = most_subwords(sentences, decoding, self._longest)
        search = self._generation(
            num_beams=decoding.beam,
            num_return_sequences=nbest,
            length_penalty=decoding.lenpen,
            early_stopping=decoding.beam > 1,
            max_new_tokens=limit + 1,
            pad_token_id=config.pad_token_id,
            eos_token_id=config.eos_token_id,
            decoder_start_token_id=config.decoder_start_token_id,
        )
        rules = [_Rules(config.pad_token_id, config.eos_token_id, limit)]
        with self._lock, torch.inference_mode():
            self._model.generation_config = search  # what it is not told, it takes from there
            made = self._model.generate(**inputs, logits_processor=rules)  # (B * nbest, 1 + T)
            scores = self._scores(inputs, made, nbest, decoding.lenpen)
        found = [
            Hypothesis(self._text(row), score)
            for row, score in zip(made[:, 1:].tolist(), scores, strict=True)
        ]
        return [found[start : start + nbest] for start in range(0, len(found), nbest)]

    def _text(self, tokens: list[int]) -> str:
        end = tokens.index(self._model.config.eos_token_id)
        return " ".join(map(self._subwords.subword, tokens[:end]))

    def _scores(
        self, inputs: dict[str, Tensor], made: Tensor, nbest: int, lenpen: float
    ) -> list[float]:
        """As `Hypothesis.score`, of ``made``: (B * nbest, 1 + T).

        The search itself tells scores only where it keeps all probabilities of all its steps.
        """
        target = made[:, 1:]  # (N, T)
        real = target.ne(self._model.config.pad_token_id)
        scores: list[float] = []
        encoder = self._model.get_encoder()
        memory = encoder(**inputs).last_hidden_state.repeat_interleave(nbest, 0)  # (N, S, C)
        mask = inputs["attention_mask"].repeat_interleave(nbest, 0)  # (N, S)
        step = max(1, _TOGETHER // (target.shape[1] * len(self._subwords)))
        for start in range(0, len(made), step):
            some = slice(start, start + step)
            logits = self._model(
                encoder_outputs=(memory[some],),
                attention_mask=mask[some],
                decoder_input_ids=made[some, :-1],
            ).logits  # (n, T, V)
            logs = logits.gather(2, target[some, :, None])[..., 0] - logits.logsumexp(2)  # (n, T)
            lengths = real[some].sum(1)  # (n,)
            scores += ((logs * real[some]).sum(1) / lengths**lenpen).tolist()
        return scores


class _Rules:
    """fairseq's rules for the next word: none is padding, the first is not the end, and after
    ``limit`` words there is the end alone, with its own probability.
    """

    def __init__(self, pad: int, eos: int, limit: int) -> None:
        self.pad, self.eos, self.limit = pad, eos, limit

    def __call__(self, made: Tensor, scores: Tensor) -> Tensor:
        """(N, 1 + words so far), (N, V) -> (N, V)."""
        never, words = float("-inf"), made.shape[1] - 1
        if words >= self.limit:
            end = scores[:, self.eos].clone()
            scores = torch.full_like(scores, never)
            scores[:, self.eos] = end
            return scores
        scores[:, self.pad] = never
        if words == 0:
            scores[:, self.eos] = never
        return scores


def import_transformers() -> Any:
    """transformers, which stumbles over a torchaudio that is there but cannot be loaded.

    Raises:
        UserError: it is not installed, or cannot be imported.
    """
    wanted = "pip install 'fairseq-mhe[huggingface]'"
    if importlib.util.find_spec("transformers") is None:
        raise UserError(f"transformers is not installed: {wanted}")
    try:
        with _without_broken_torchaudio():
            import transformers
            from transformers.utils import import_utils

            asked = import_utils.is_torchaudio_available
            if hasattr(asked, "cache_clear"):  # whoever imported it before has asked
                asked.cache_clear()
            asked()
    except ImportError as error:
        reason = " ".join(str(error).split())
        raise UserError(f"transformers cannot be used ({reason}): {wanted}") from None
    return transformers


@contextlib.contextmanager
def _without_broken_torchaudio() -> Iterator[None]:
    """Where torchaudio cannot be imported, it is not to be found."""
    try:
        import torchaudio  # noqa: F401
    except (ImportError, OSError):
        sys.modules["torchaudio"] = None  # type: ignore[assignment]
        try:
            yield
        finally:
            del sys.modules["torchaudio"]
    else:
        yield


@contextlib.contextmanager
def quiet_transformers(transformers: Any) -> Iterator[None]:
    """No progress bars and no advice."""
    logging = transformers.utils.logging
    level, shown = logging.get_verbosity(), logging.is_progress_bar_enabled()
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    try:
        yield
    finally:
        logging.set_verbosity(level)
        if shown:
            logging.enable_progress_bar()


def _load(transformers: Any, folder: Path, words: int) -> Any:
    """The model in evaluation mode, each of whose weights is in its file, and of as many words."""
    try:
        with quiet_transformers(transformers):
            model, told = transformers.AutoModelForSeq2SeqLM.from_pretrained(
                folder,
                local_files_only=True,
                trust_remote_code=False,  # else it asks, and takes a line of text for the answer
                use_safetensors=True,
                ignore_mismatched_sizes=True,  # they are told, as what is missing is
                output_loading_info=True,
            )
    except Exception as error:  # whatever it meets in another's files
        reason = " ".join(str(error).split())
        raise UserError(f"transformers cannot load {folder}: {reason:.300}; {ADVICE}") from None
    wrong = [
        name if isinstance(name, str) else name[0] for names in told.values() for name in names
    ]
    if wrong:
        raise UserError(
            f"the weights in {folder} do not fit its config.json ({wrong[0]}): {ADVICE}"
        )
    if model.config.vocab_size != words:
        raise UserError(
            f"tokenizer.json in {folder} has {words} words, the weights "
            f"{model.config.vocab_size}: they are of different models; {ADVICE}"
        )
    return model.eval()
