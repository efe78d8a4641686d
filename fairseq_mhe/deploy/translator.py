"""Plain text to plain text in Python: a bundle, a run or a checkpoint as a `Translator`."""

from __future__ import annotations

import os
import threading
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING

import fairseq_mhe
from fairseq_mhe.common.errors import UserError
from fairseq_mhe.deploy.bundle import Bundle, is_bundle, open_bundle
from fairseq_mhe.deploy.ctranslate2_engine import CTranslate2Engine, Hypothesis
from fairseq_mhe.deploy.long_lines import cut
from fairseq_mhe.prepare.languages import has_spaces
from fairseq_mhe.prepare.text_processing import normalise
from fairseq_mhe.runs.decoding import Decoding

if TYPE_CHECKING:  # they import fairseq, which a bundle for CTranslate2 does not need
    from fairseq_mhe.deploy.fairseq_engine import FairseqEngine
    from fairseq_mhe.deploy.trained import Trained

ENGINES = ("auto", "fairseq", "ctranslate2")
#: Number formats of products: int8 by both engines, bf16 by fairseq on a CPU; auto is bf16 where
#: the processor computes it fast, else float32.
PRECISIONS = ("float32", "bf16", "int8", "auto")
#: Format of weights -> engines that read it.
_READERS = {"fairseq": ENGINES, "ctranslate2": ("auto", "ctranslate2")}


@dataclass(frozen=True)
class Translation:
    """A translation and its score.

    The score is the log probability (natural) of its subwords and end, divided by their number to
    the power of the length penalty; of a line that was cut, the sum over its parts.
    """

    text: str
    score: float


def _warn_of_cut(line: int) -> None:
    warnings.warn(f"line {line}: a sentence is too long and was cut inside", stacklevel=4)


class Translator:
    """A model that translates plain text, processed as its training text was.

    Several threads may call it; it works for one after the other. Loading changes neither logging
    nor warnings.

    Attributes:
        languages: source and target, as in ``("en", "de")``.
        engine: "fairseq" or "ctranslate2".
        decoding: beam, length penalty and limits: those that the model was scored with.
    """

    def __init__(
        self, model: Bundle | Trained, engine: FairseqEngine | CTranslate2Engine
    ) -> None:
        """Use `load`."""
        self.model = model
        self.languages = model.text.languages
        self.engine = engine.name
        self.decoding = model.decoding
        self._engine = engine
        self._longest = model.positions[0] - 1  # without the end of the sentence
        self._lock = threading.Lock()  # tokenisers, subwords and models keep caches

    @classmethod
    def load(
        cls,
        model: str | os.PathLike[str],
        *,
        data: str | os.PathLike[str] | None = None,
        engine: str = "auto",
        precision: str = "float32",
        cpu: bool = False,
        threads: int | None = None,
    ) -> Translator:
        """Load a bundle (of ``fairseq-mhe export``), a run folder, or a checkpoint.

        Args:
            model: the folder or file.
            data: the data folder that a checkpoint was trained on; bundles and runs know theirs.
            engine: one of `ENGINES`; docs/deploy.md says what "auto" is.
            precision: one of `PRECISIONS`.
            cpu: no GPU even where there is one.
            threads: of CTranslate2 (default: all cores); fairseq has ``torch.set_num_threads``.

        Raises:
            UserError: (of ``fairseq_mhe.common.errors``) a file is missing or damaged, or a
                package is not installed.
        """
        path = Path(model)
        for value, known in ((engine, ENGINES), (precision, PRECISIONS)):
            if value not in known:
                raise UserError(f"{value!r} is unknown: choose one of {', '.join(known)}")
        bundle = open_bundle(path) if is_bundle(path) else None
        form = bundle.format if bundle else "fairseq"
        if engine not in _READERS.get(form, ()):
            raise UserError(
                f"{path} is a bundle for {form}, which --engine {engine} does not read: run its "
                "example.py, or export the model with --format fairseq"
            )
        if precision == "bf16" and "ctranslate2" in (engine, form):
            raise UserError("CTranslate2 has no bf16 on a CPU: choose fairseq, or float32")
        if bundle and form == "ctranslate2":
            longest = bundle.positions[1]
            return cls(bundle, CTranslate2Engine(path, longest, precision, cpu, threads))
        fairseq_mhe.register()
        from fairseq_mhe.deploy.fairseq_engine import open_engine
        from fairseq_mhe.deploy.trained import open_trained, read_bundle

        folder = None if data is None else Path(data)
        trained = read_bundle(bundle) if bundle else open_trained(path, folder)
        return cls(trained, open_engine(trained, engine, precision, cpu, threads))

    def translate(
        self,
        lines: Iterable[str],
        *,
        beam: int | None = None,
        batch_tokens: int | None = None,
    ) -> list[str]:
        """One translation for each line, in order; a line without text stays empty.

        Args:
            lines: plain text, one sentence each. A line that is too long for the model is cut at
                ends of sentences.
            beam: hypotheses that the search keeps (default: as the model was scored).
            batch_tokens: subwords that are translated at a time (default: likewise).

        Raises:
            TypeError: ``lines`` is one string, or has something else than strings.
        """
        best = self.nbest(lines, 1, beam=beam, batch_tokens=batch_tokens)
        return [translation.text for (translation,) in best]

    def nbest(
        self,
        lines: Iterable[str],
        count: int,
        *,
        beam: int | None = None,
        batch_tokens: int | None = None,
        on_cut: Callable[[int], None] = _warn_of_cut,
    ) -> list[list[Translation]]:
        """The ``count`` best translations of each line with their scores, best first.

        Of a line that is cut, the n-th joins the n-th of each part.

        Args:
            lines, beam, batch_tokens: as for `translate`.
            count: at most the beam.
            on_cut: called with the number of each line, from 1, that was cut inside a sentence.

        Raises:
            TypeError: as `translate`.
            UserError: ``count`` is larger than the beam.
        """
        texts = list(lines)
        if isinstance(lines, str) or not all(isinstance(text, str) for text in texts):
            raise TypeError(
                "lines is not a list of strings: give a list, one sentence a string"
            )
        decoding = replace(
            self.decoding,
            beam=beam or self.decoding.beam,
            max_tokens=batch_tokens or self.decoding.max_tokens,
        )
        if count > decoding.beam:
            raise UserError(
                f"a beam of {decoding.beam} has no {count} translations of a line: take a larger "
                "beam, or fewer"
            )
        with self._lock:
            parts = self._parts(texts, on_cut)
            sentences = [subwords for of_line in parts for subwords in of_line]
            hypotheses = iter(self._search(sentences, decoding, count))
            return [
                self._joined(list(islice(hypotheses, len(each))), count) for each in parts
            ]

    def _segment(self, lines: Sequence[str]) -> list[list[str]]:
        return [line.split() for line in self.model.text.segment(lines)]

    def _parts(
        self, lines: list[str], on_cut: Callable[[int], None]
    ) -> list[list[list[str]]]:
        """The subwords of each line's parts: of none, of the whole line, or of several."""

        def fits(part: str) -> bool:
            return len(self._segment([part])[0]) <= self._longest

        parts = []
        for number, subwords in enumerate(self._segment(lines), 1):
            if len(subwords) <= self._longest:
                parts.append([subwords] if subwords else [])
                continue
            texts, inside = cut(normalise(lines[number - 1]), fits)
            if inside:
                on_cut(number)
            parts.append(self._segment(texts))
        return parts

    def _search(
        self, sentences: list[list[str]], decoding: Decoding, count: int
    ) -> list[list[Hypothesis]]:
        """The ``count`` hypotheses of each sentence, best first."""
        results: dict[int, list[Hypothesis]] = {}
        for batch in _batches(sentences, decoding.max_tokens):
            subwords = [sentences[index] for index in batch]
            hypotheses = self._engine.translate(subwords, decoding, count)
            results.update(zip(batch, hypotheses, strict=True))
        return [results[index] for index in range(len(sentences))]

    def _joined(self, parts: list[list[Hypothesis]], count: int) -> list[Translation]:
        """The translations of a line from those of its parts."""
        if not parts:
            return [Translation("", 0.0)] * count
        space = " " if has_spaces(self.languages[1]) else ""
        joined = []
        for hypotheses in zip(*parts, strict=True):
            subwords, scores = zip(*hypotheses, strict=True)
            text = space.join(self.model.text.plain(subwords))
            joined.append(Translation(text, sum(scores)))
        return joined


def _batches(sentences: Sequence[Sequence[str]], max_tokens: int) -> Iterator[list[int]]:
    """The indices of sentences of similar lengths together, shortest first.

    A batch has at most ``max_tokens``, ends and padding included; a longer sentence is a batch by
    itself.
    """
    batch: list[int] = []
    for index in sorted(range(len(sentences)), key=lambda index: len(sentences[index])):
        if batch and (len(batch) + 1) * (len(sentences[index]) + 1) > max_tokens:
            yield batch
            batch = []
        batch.append(index)
    if batch:
        yield batch
