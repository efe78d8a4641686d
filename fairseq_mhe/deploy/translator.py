"""Translate plain text in Python: a `Translator` loads a bundle, a run folder or a checkpoint."""

import math
import os
import threading
import warnings
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any, Self

import fairseq_mhe
from fairseq_mhe.common.errors import UserError
from fairseq_mhe.deploy import long_lines
from fairseq_mhe.deploy.bundle import CONFIG, open_bundle
from fairseq_mhe.deploy.ctranslate2_engine import (
    NOT_FINITE,
    CTranslate2Engine,
    NBest,
    Sentences,
    Translation,
)
from fairseq_mhe.prepare.languages import has_spaces
from fairseq_mhe.prepare.text_processing import normalise
from fairseq_mhe.runs.decoding import Decoding

ENGINES = ("auto", "fairseq", "ctranslate2")
#: Format of a bundle -> the engines that read it.
_READERS = {"fairseq": ENGINES, "ctranslate2": ("auto", "ctranslate2")}
#: A wider beam needs more memory than it is worth, and overflows numbers in CTranslate2.
WIDEST_BEAM = 1000
#: Lines of as many sentences are named.
MANY_SENTENCES = 3
PRECISIONS = ("float32", "fp16", "bf16", "int8", "auto")


def _warn(line: int, problem: str) -> None:
    warnings.warn(f"line {line}: {problem}", stacklevel=3)


class Translator:
    """A model that translates plain text, which it processes like its training text.

    Several threads may call it; it serves them in turn. ``languages``: source and target;
    ``engine``: "fairseq" or "ctranslate2"; ``decoding``: the search of the model's scoring.
    """

    def __init__(self, model: Any, engine: Any) -> None:  # users call `load` instead
        self.model = model  # a `Bundle` or a `Trained`
        self.languages: tuple[str, str] = model.text.languages
        self.decoding: Decoding = model.decoding
        self.engine: str = engine.name
        self._engine = engine
        self._longest = model.positions[0] - 1  # without </s>
        self._has_warned = False
        self.lock = threading.Lock()  # tokenisers, subwords and models keep caches

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

        The options are those of ``fairseq-mhe translate --help``; the engine fairseq sets
        ``threads`` for the whole process. UserError if a file or package is missing or damaged.
        """
        path = Path(model)
        if threads:  # of very many, CTranslate2 crashes
            threads = min(threads, os.cpu_count() or 1)
        for value, known in ((engine, ENGINES), (precision, PRECISIONS)):
            if value not in known:
                raise UserError(f"{value!r} is unknown: choose one of {', '.join(known)}")
        bundle = open_bundle(path) if (path / CONFIG).is_file() else None
        if bundle and data:
            raise UserError(f"{path} is a bundle, which needs no data: leave --data out")
        format = bundle.format if bundle else "fairseq"
        if engine not in _READERS.get(format, ()):
            raise UserError(
                f"{path} is a bundle for {format}, which --engine {engine} does not read: run its "
                "example.py, or export the model with --format fairseq"
            )
        if precision == "bf16" and "ctranslate2" in (engine, format):
            raise UserError("CTranslate2 has no bf16 on a CPU: choose float32 or int8")
        if bundle and format == "ctranslate2":
            longest = bundle.positions[1]
            return cls(bundle, CTranslate2Engine(path, longest, precision, cpu, threads))
        fairseq_mhe.register()
        from fairseq_mhe.deploy.trained import open_engine, open_trained, read_bundle

        folder = None if data is None else Path(data)
        trained = read_bundle(bundle) if bundle else open_trained(path, folder)
        return cls(trained, open_engine(trained, engine, precision, cpu, threads))

    def translate(
        self,
        lines: Iterable[str],
        *,
        beam: int | None = None,
        batch_tokens: int | None = None,
        sentences: bool = False,
    ) -> list[str]:
        """Return a translation for each line, in order; a line without text stays empty.

        ``sentences``: translate each sentence of a line by itself. Otherwise a line should be one
        sentence; a line too long is cut between sentences. TypeError for a string.
        """
        best = self.nbest(
            lines, 1, beam=beam, batch_tokens=batch_tokens, sentences=sentences
        )
        return [translation.text for (translation,) in best]

    def nbest(
        self,
        lines: Iterable[str],
        count: int,
        *,
        beam: int | None = None,
        batch_tokens: int | None = None,
        sentences: bool = False,
        warn: Callable[[int, str], None] = _warn,
    ) -> NBest:
        """Return the ``count`` best translations of each line with their scores, best first.

        If a line is cut, its n-th translation joins the n-th ones of its parts. ``warn`` gets the
        number, from 1, of each line in which a sentence is cut, and of the first line of several
        sentences, with the problem. UserError for a beam that is too small or too wide.
        """
        texts = list(lines)
        if isinstance(lines, str) or not all(isinstance(text, str) for text in texts):
            raise TypeError("lines is not a list of strings: give a list of sentences")
        beam = beam or self.decoding.beam
        max_tokens = batch_tokens or self.decoding.max_tokens
        if beam > WIDEST_BEAM:
            raise UserError(f"a beam of {beam} is too wide: take at most {WIDEST_BEAM}")
        if count > beam:
            problem = f"a beam of {beam} has no {count} translations of a line"
            raise UserError(f"{problem}: take a larger beam, or fewer")
        decoding = replace(self.decoding, beam=beam, max_tokens=max_tokens)
        with self.lock:
            segmented = self._segment(texts)
            lines_in_parts = []
            pairs = zip(texts, segmented, strict=True)
            for number, (text, subwords) in enumerate(pairs, 1):
                parts, problem = self._parts(text, subwords, sentences)
                lines_in_parts.append(parts)
                if problem:
                    warn(number, problem)
            all_parts = [part for parts in lines_in_parts for part in parts]
            hypotheses = iter(self._search(all_parts, decoding, count))
            results = []
            for parts in lines_in_parts:
                translations = list(islice(hypotheses, len(parts)))
                results.append(self._join(translations, count))
            return results

    def search(
        self, sentences: Sentences, on_batch: Callable[[int], object]
    ) -> list[str]:
        """Return the best translation of each sentence, all in subwords.

        ``on_batch`` gets the number of sentences of each batch that is done.
        """
        with self.lock:
            best = self._search(sentences, self.decoding, 1, on_batch)
        return [translation.text for (translation,) in best]

    def _segment(self, lines: Sequence[str]) -> Sentences:
        return [line.split() for line in self.model.text.segment(lines)]

    def _parts(
        self, line: str, subwords: list[str], sentences: bool
    ) -> tuple[Sentences, str]:
        """Return the subwords of a line's parts, which fit the model, and a problem or "".

        A line has no part if it has no text, one part if it fits, or several.
        """
        if not subwords:
            return [], ""
        if not sentences and len(subwords) <= self._longest:
            return [subwords], self._problem_of_sentences(line)
        language = self.languages[0]
        texts = [normalise(line)]
        if sentences:
            texts = long_lines.sentences(texts[0], language)
        parts: Sentences = []
        problem = ""
        for text in texts:
            pieces, sentence_cut = long_lines.cut(text, language, self._fits)
            parts += self._segment(pieces)
            if sentence_cut:
                problem = "a sentence is too long and was cut"
        return parts, problem

    def _fits(self, text: str) -> bool:
        return len(self._segment([text])[0]) <= self._longest

    def _problem_of_sentences(self, line: str) -> str:
        """Return a warning for the first line of several sentences: few of them are translated."""
        if self._has_warned or len(line) < MANY_SENTENCES:
            return ""
        count = len(long_lines.sentences(normalise(line), self.languages[0]))
        if count < MANY_SENTENCES:
            return ""
        self._has_warned = True
        return (
            f"it has {count} sentences, and a model that learned from single sentences loses "
            "most of them: --sentences (sentences=True) translates each by itself"
        )

    def _search(
        self,
        sentences: Sentences,
        decoding: Decoding,
        count: int,
        on_batch: Callable[[int], object] = lambda size: None,
    ) -> NBest:
        """Return ``count`` hypotheses of each sentence, searched in batches of similar length."""
        order = sorted(range(len(sentences)), key=lambda index: len(sentences[index]))
        batches: list[list[int]] = []
        for index in order:
            longest = len(sentences[index]) + 1  # with </s>
            if not batches or (len(batches[-1]) + 1) * longest > decoding.max_tokens:
                batches.append([])
            batches[-1].append(index)
        results: dict[int, list[Translation]] = {}
        for batch in batches:
            subwords = [sentences[index] for index in batch]
            hypotheses = self._engine.translate(subwords, decoding, count)
            if not all(math.isfinite(best.score) for best, *_ in hypotheses):
                raise UserError(NOT_FINITE)
            results.update(zip(batch, hypotheses, strict=True))
            on_batch(len(batch))
        return [results[index] for index in range(len(sentences))]

    def _join(self, parts: NBest, count: int) -> list[Translation]:
        """Join the ``count`` translations of each part of a line to translations of the line."""
        if not parts:
            return [Translation("", 0.0)] * count
        space = " " if has_spaces(self.languages[1]) else ""
        joined = []
        for hypotheses in zip(*parts, strict=True):
            texts = self.model.text.plain(hypothesis.text for hypothesis in hypotheses)
            score = sum(hypothesis.score for hypothesis in hypotheses)
            joined.append(Translation(space.join(texts), score))
        return joined
