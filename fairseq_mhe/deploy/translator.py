"""Plain text to plain text in Python: a bundle, a run or a checkpoint as a `Translator`."""

import threading
import warnings
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any, Self

import fairseq_mhe
from fairseq_mhe.common.errors import ErrorExit, UserError
from fairseq_mhe.deploy.bundle import CONFIG, open_bundle
from fairseq_mhe.deploy.ctranslate2_engine import CTranslate2Engine, Translation
from fairseq_mhe.deploy.long_lines import cut
from fairseq_mhe.prepare.languages import has_spaces
from fairseq_mhe.prepare.text_processing import normalise
from fairseq_mhe.runs.decoding import Decoding

ENGINES = ("auto", "fairseq", "ctranslate2")
#: Number formats of products: int8 by both engines, bf16 by fairseq on a CPU; auto is bf16 where
#: the processor computes it fast, else float32.
PRECISIONS = ("float32", "bf16", "int8", "auto")


def _warn_of_cut(line: int) -> None:
    warnings.warn(f"line {line}: a sentence is too long and was cut inside", stacklevel=4)


class Translator:
    """A model that translates plain text, processed as its training text was.

    Several threads may call it; it works for one after the other. ``languages``: source and target,
    ``engine``: "fairseq" or "ctranslate2", ``decoding``: how the model was scored.
    """

    def __init__(self, model: Any, engine: Any) -> None:  # use `load`
        self.model = model  # a `Bundle` or a `Trained`
        self.languages: tuple[str, str] = model.text.languages
        self.decoding: Decoding = model.decoding
        self.engine: str = engine.name
        self._engine = engine
        self._longest = model.positions[0] - 1  # without the end of the sentence
        self._lock = threading.Lock()  # tokenisers, subwords and models keep caches

    @classmethod
    def load(
        cls,
        model: str | Path,
        *,
        data: str | Path | None = None,
        engine: str = "auto",
        precision: str = "float32",
        cpu: bool = False,
        threads: int | None = None,
    ) -> Self:
        """Load a bundle (of ``fairseq-mhe export``), a run folder, or a checkpoint.

        The options are those of ``fairseq-mhe translate --help``; fairseq sets ``threads`` for the
        whole process. UserError where a file is missing or damaged, or a package not installed.
        """
        path = Path(model)
        for value, known in ((engine, ENGINES), (precision, PRECISIONS)):
            if value not in known:
                raise UserError(f"{value!r} is unknown: choose one of {', '.join(known)}")
        bundle = open_bundle(path) if (path / CONFIG).is_file() else None
        form = bundle.format if bundle else "fairseq"
        if form not in ENGINES or (form, engine) == ("ctranslate2", "fairseq"):
            raise UserError(
                f"{path} is a bundle for {form}, which --engine {engine} does not read: run its "
                "example.py, or export the model with --format fairseq"
            )
        if precision == "bf16" and "ctranslate2" in (engine, form):
            raise UserError(
                "CTranslate2 has no bf16 on a CPU: choose fairseq, or float32"
            )
        if bundle and form == "ctranslate2":
            longest = bundle.positions[1]
            return cls(bundle, CTranslate2Engine(path, longest, precision, cpu, threads))
        fairseq_mhe.register()
        from fairseq_mhe.deploy.trained import open_engine, open_trained, read_bundle

        folder = None if data is None else Path(data)
        try:
            trained = read_bundle(bundle) if bundle else open_trained(path, folder)
            return cls(trained, open_engine(trained, engine, precision, cpu, threads))
        except ErrorExit as error:  # what ends a command of fairseq's
            raise UserError(error.message) from None

    def translate(
        self,
        lines: Iterable[str],
        *,
        beam: int | None = None,
        batch_tokens: int | None = None,
    ) -> list[str]:
        """One translation for each line, in order; a line without text stays empty.

        A line is one sentence; one that is too long for the model is cut at ends of sentences.
        TypeError where ``lines`` is one string, or has something else than strings.
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

        Of a line that is cut, the n-th joins the n-th of each part. ``on_cut`` is called with the
        number of each line, from 1, that was cut inside a sentence. Errors as of `translate`;
        UserError where ``count`` is larger than the beam.
        """
        texts = list(lines)
        if isinstance(lines, str) or not all(isinstance(text, str) for text in texts):
            raise TypeError(
                "lines is not a list of strings: give a list, one sentence a string"
            )
        beam, most = beam or self.decoding.beam, batch_tokens or self.decoding.max_tokens
        if count > beam:
            raise UserError(
                f"a beam of {beam} has no {count} translations of a line: take a larger beam, "
                "or fewer"
            )
        decoding = replace(self.decoding, beam=beam, max_tokens=most)
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
        """The subwords of each line's parts: none, the whole line, or several."""

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
    ) -> list[list[Translation]]:
        """The ``count`` hypotheses of each sentence, best first."""
        order = sorted(range(len(sentences)), key=lambda index: len(sentences[index]))
        batches: list[list[int]] = []
        for index in order:  # similar lengths together
            longest = len(sentences[index]) + 1  # with its end
            if not batches or (len(batches[-1]) + 1) * longest > decoding.max_tokens:
                batches.append([])
            batches[-1].append(index)
        results: dict[int, list[Translation]] = {}
        for batch in batches:
            subwords = [sentences[index] for index in batch]
            hypotheses = self._engine.translate(subwords, decoding, count)
            results.update(zip(batch, hypotheses, strict=True))
        return [results[index] for index in range(len(sentences))]

    def _joined(self, parts: list[list[Translation]], count: int) -> list[Translation]:
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
