"""Plain text to plain text in Python: a bundle, a run or a checkpoint as a `Translator`."""

from __future__ import annotations

import os
import threading
import warnings
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import chain, islice
from pathlib import Path

import fairseq_mhe
from fairseq_mhe.common.errors import UserError
from fairseq_mhe.deploy import ctranslate2_engine
from fairseq_mhe.deploy.bundle import is_bundle, open_bundle
from fairseq_mhe.deploy.engine import (
    AUTO,
    BF16,
    CTRANSLATE2,
    ENGINES,
    FAIRSEQ,
    FLOAT32,
    INT8,
    PRECISIONS,
    Hypothesis,
    Loaded,
    batches,
)
from fairseq_mhe.deploy.long_lines import cut
from fairseq_mhe.prepare.clean import normalise
from fairseq_mhe.prepare.languages import has_spaces
from fairseq_mhe.runs.decoding import Decoding


@dataclass(frozen=True)
class Translation:
    """A translation and its score.

    The score is the mean log probability (natural) of its subwords where the length penalty is 1;
    of a line that was cut, the sum over its parts.
    """

    text: str
    score: float


def _warn_of_cut(line: int) -> None:
    warnings.warn(f"line {line}: a sentence is too long and was cut inside", stacklevel=4)


class Translator:
    """A model that translates plain text, with all that its training text went through.

    Several threads may call it; it works for one after the other. Loading changes neither logging
    nor warnings.

    Attributes:
        languages: source and target, as in ``("en", "de")``.
        engine: "fairseq" or "ctranslate2".
        decoding: beam, length penalty and limits: those that the model was scored with.
    """

    def __init__(self, loaded: Loaded) -> None:
        """Use `load`."""
        self.languages = loaded.text.languages
        self.engine = loaded.engine.name
        self.decoding = loaded.decoding
        self._text, self._engine = loaded.text, loaded.engine
        self._longest = loaded.positions[0] - 1  # without the end of the sentence
        self._lock = threading.Lock()  # tokenisers, subwords and models keep caches

    @classmethod
    def load(
        cls,
        model: str | os.PathLike[str],
        *,
        data: str | os.PathLike[str] | None = None,
        direction: str | None = None,
        engine: str = AUTO,
        int8: bool = False,
        precision: str = FLOAT32,
        cpu: bool = False,
        threads: int | None = None,
    ) -> Translator:
        """Load a bundle (of ``fairseq-mhe export``), a run folder, or a checkpoint.

        Args:
            model: the folder or file.
            data: the data folder that a checkpoint was trained on; bundles and runs know theirs.
            direction: as "en-de", to refuse a model of other languages.
            engine: "fairseq", "ctranslate2", or "auto": docs/deploy.md says which that is.
            int8: with weights of 8-bit integers, an approximation.
            precision: of products on a CPU by fairseq: "float32", "bf16", or "auto": bf16 where it
                is fast.
            cpu: no GPU even where there is one.
            threads: of CTranslate2 (default: all cores); fairseq has ``torch.set_num_threads``.

        Raises:
            UserError: (of ``fairseq_mhe.common.errors``) a file is missing or damaged, the
                direction is another one, or a package is not installed.
        """
        path = Path(model)
        if engine not in ENGINES:
            raise UserError(f"unknown engine {engine!r}; choose one of: {', '.join(ENGINES)}")
        if precision not in PRECISIONS:
            raise UserError(
                f"unknown precision {precision!r}; choose one of: {', '.join(PRECISIONS)}"
            )
        if precision == BF16 and engine == CTRANSLATE2:
            raise UserError(
                "CTranslate2 has no bf16 on a CPU: choose the engine fairseq, or float32"
            )
        if not path.exists():
            raise UserError(f"{path} does not exist: give a bundle, a run folder or a checkpoint")
        numbers = INT8 if int8 else precision
        bundle = open_bundle(path) if is_bundle(path) else None
        if bundle and data is not None:
            raise UserError(f"{path} is a bundle, which needs no data folder: leave it out")
        if bundle and bundle.format != FAIRSEQ:
            loaded = ctranslate2_engine.load(bundle, engine, numbers, cpu, threads)
        else:
            fairseq_mhe.register()
            from fairseq_mhe.deploy.fairseq_engine import load

            folder = None if data is None else Path(data)
            loaded = load(path, bundle, folder, engine, numbers, cpu, threads)
        languages = "-".join(loaded.text.languages)
        if direction not in (None, languages):
            raise UserError(f"{path} translates {languages}, not {direction}: give another model")
        return cls(loaded)

    def translate(
        self, lines: Iterable[str], *, beam: int | None = None, batch_tokens: int | None = None
    ) -> list[str]:
        """One translation for each line, in order; a line without text stays empty.

        Args:
            lines: plain text, one sentence each. A line that is too long for the model is cut at
                ends of sentences.
            beam: hypotheses that the search keeps (default: as the model was scored).
            batch_tokens: subwords that are translated at a time (default: likewise).

        Raises:
            TypeError: ``lines`` is one string, or has something else than strings.
            UserError: ``beam`` or ``batch_tokens`` is less than 1.
        """
        found = self.nbest(lines, 1, beam=beam, batch_tokens=batch_tokens)
        return [best.text for best, *_ in found]

    def nbest(
        self,
        lines: Iterable[str],
        count: int,
        *,
        beam: int | None = None,
        batch_tokens: int | None = None,
        on_progress: Callable[[float], None] = lambda share: None,
        on_cut: Callable[[int], None] = _warn_of_cut,
    ) -> list[list[Translation]]:
        """The ``count`` best translations of each line with their scores, best first.

        Of a line that is cut, the n-th joins the n-th of each part.

        Args:
            lines, beam, batch_tokens: as for `translate`.
            count: at most the beam.
            on_progress: called after each batch with the share of the work that is done.
            on_cut: called with the number of each line, from 1, that was cut inside a sentence.

        Raises:
            TypeError: as `translate`.
            UserError: as `translate`; or ``count`` is larger than the beam.
        """
        if isinstance(lines, str):
            raise TypeError("give a list of strings, one sentence each, not one string")
        lines = list(lines)
        wrong = [line for line in lines if not isinstance(line, str)]
        if wrong:
            raise TypeError(f"give a list of strings, one sentence each; {wrong[0]!r} is no string")
        decoding = self._decoding(count, beam, batch_tokens)
        with self._lock:
            parts = self._parts(lines, on_cut)
            hypotheses = iter(self._search(list(chain(*parts)), decoding, count, on_progress))
            return [self._joined(list(islice(hypotheses, len(each))), count) for each in parts]

    def _decoding(self, count: int, beam: int | None, batch_tokens: int | None) -> Decoding:
        decoding = self.decoding
        for name, value in (("beam", beam), ("max_tokens", batch_tokens)):
            if value is not None:
                if value < 1:
                    raise UserError(f"the {name} is {value}; it must be at least 1")
                decoding = replace(decoding, **{name: value})
        if not 1 <= count <= decoding.beam:
            raise UserError(
                f"a beam of {decoding.beam} has no {count} translations of a line: take a larger "
                "beam, or fewer"
            )
        return decoding

    def _segment(self, lines: Sequence[str]) -> list[list[str]]:
        return [line.split() for line in self._text.segment(lines)]

    def _parts(self, lines: list[str], on_cut: Callable[[int], None]) -> list[list[list[str]]]:
        """The subwords of each line's parts: of none, of the whole line, or of several."""
        parts = []
        for index, subwords in enumerate(self._segment(lines)):
            if len(subwords) <= self._longest:
                parts.append([subwords] if subwords else [])
                continue
            cut_parts, inside = cut(
                normalise(lines[index]), lambda part: len(self._segment([part])[0]) <= self._longest
            )
            if inside:
                on_cut(index + 1)
            parts.append(self._segment(cut_parts))
        return parts

    def _search(
        self,
        sentences: list[list[str]],
        decoding: Decoding,
        count: int,
        on_progress: Callable[[float], None],
    ) -> list[list[Hypothesis]]:
        """The hypotheses of each sentence."""
        found: dict[int, list[Hypothesis]] = {}
        for batch in batches(sentences, decoding.max_tokens):
            subwords = [sentences[index] for index in batch]
            results = self._engine.translate(subwords, decoding, count)
            found.update(zip(batch, results, strict=True))
            on_progress(len(found) / len(sentences))
        return [found[index] for index in range(len(sentences))]

    def _joined(self, parts: list[list[Hypothesis]], count: int) -> list[Translation]:
        """The translations of a line from those of its parts."""
        if not parts:
            return [Translation("", 0.0)] * count
        space = " " if has_spaces(self.languages[1]) else ""
        joined = []
        for ranked in zip(*parts, strict=True):
            texts = self._text.plain([hypothesis.subwords for hypothesis in ranked])
            score = sum(hypothesis.score for hypothesis in ranked)
            joined.append(Translation(space.join(texts), score))
        return joined
