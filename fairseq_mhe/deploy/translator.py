"""Plain text to plain text in Python: a bundle, a run or a checkpoint as a `Translator`."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from fairseq_mhe.common.errors import UserError
from fairseq_mhe.deploy.engine import Engine, Hypothesis, batches
from fairseq_mhe.deploy.loading import load_parts
from fairseq_mhe.deploy.long_lines import cut
from fairseq_mhe.prepare.clean import normalise
from fairseq_mhe.prepare.languages import has_spaces
from fairseq_mhe.prepare.text_processing import TextProcessing
from fairseq_mhe.runs.decoding import Decoding

#: Called after each batch with how many lines are translated.
Report = Callable[[int], None]


@dataclass(frozen=True)
class Translation:
    """A translation and its score.

    The score is the mean log probability (natural) of its subwords where the length penalty is 1;
    of a line that was cut, the sum over its parts.
    """

    text: str
    score: float


class Translator:
    """A model that translates plain text, with all that its training text went through.

    Safe to be called by several threads, for which it works one after the other. Loading changes
    nothing of logging and warnings; fairseq's own code runs in the process, on as many threads as
    torch has.

    Attributes:
        languages: source and target, as in ``("en", "de")``.
        engine: "fairseq" or "ctranslate2".
        decoding: beam, length penalty and limits, those that the model was scored with.
    """

    def __init__(
        self,
        text: TextProcessing,
        engine: Engine,
        decoding: Decoding,
        positions: tuple[int, int],
        name: str,
    ) -> None:
        """Use `load`; ``name`` is what messages call the model."""
        self.languages = text.languages
        self.engine = engine.name
        self.decoding = decoding
        self._text, self._engine, self._name = text, engine, name
        self._longest = positions[0] - 1  # without the end of the sentence
        self._lock = threading.Lock()  # tokenisers and subwords remember words

    @classmethod
    def load(
        cls,
        model: str | os.PathLike[str],
        *,
        data: str | os.PathLike[str] | None = None,
        direction: str | None = None,
        engine: str = "auto",
        int8: bool = False,
        cpu: bool = False,
        threads: int | None = None,
    ) -> Translator:
        """Load a bundle (of ``fairseq-mhe export``), a run folder, or a checkpoint.

        Args:
            model: the folder or file.
            data: the data folder that a checkpoint was trained on; bundles and runs know theirs.
            direction: as "en-de", where it shall be checked.
            engine: "fairseq", "ctranslate2", or "auto": docs/deploy.md says which that is.
            int8: with weights of 8-bit integers, an approximation.
            cpu: no GPU even where there is one.
            threads: of CTranslate2 (default: all cores); fairseq has ``torch.set_num_threads``.

        Raises:
            UserError: (of ``fairseq_mhe.common.errors``) a file is missing, damaged or does not fit
                the others, the direction is another one, or a package is not installed.
        """
        folder = None if data is None else Path(data)
        return cls(*load_parts(Path(model), folder, direction, engine, int8, cpu, threads))

    def translate(
        self, lines: Iterable[str], *, beam: int | None = None, batch_tokens: int | None = None
    ) -> list[str]:
        """One translation for each line, in order; what has no text is empty.

        Args:
            lines: plain text, a sentence each; a longer line than the model takes is cut at the
                ends of sentences.
            beam: hypotheses that the search keeps (default: as the model was scored).
            batch_tokens: subwords that are translated at a time (default: likewise).

        Raises:
            UserError: a sentence is longer than the model takes; nothing is translated.
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
        report: Report = lambda done: None,
    ) -> list[list[Translation]]:
        """The ``count`` best translations of each line with their scores, best first.

        Of a line that is cut, the n-th is made of the n-th of its parts.

        Raises:
            UserError: as `translate`; or ``count`` is larger than the beam.
            TypeError: ``lines`` is one string.
        """
        if isinstance(lines, str):
            raise TypeError("give a list of lines, not one string")
        decoding = self._decoding(beam, batch_tokens)
        if not 1 <= count <= decoding.beam:
            raise UserError(
                f"{count} translations of a line cannot come of a beam of {decoding.beam}: "
                "take a larger beam, or fewer"
            )
        sentences, owners = self._sentences(list(lines))
        hypotheses = self._hypotheses(sentences, owners, decoding, count, report)
        return [self._joined(parts, count) for parts in hypotheses]

    def _decoding(self, beam: int | None, batch_tokens: int | None) -> Decoding:
        decoding = self.decoding
        for name, value in (("beam", beam), ("max_tokens", batch_tokens)):
            if value is not None:
                if value < 1:
                    raise UserError(f"the {name} is {value}; it must be at least 1")
                decoding = replace(decoding, **{name: value})
        return decoding

    def _segment(self, lines: Sequence[str]) -> list[list[str]]:
        with self._lock:
            return [line.split() for line in self._text.segment(lines)]

    def _sentences(self, lines: list[str]) -> tuple[list[list[str]], list[list[int]]]:
        """The subwords of all that is to be translated, and the places of each line's parts."""
        sentences: list[list[str]] = []
        owners: list[list[int]] = []
        for number, subwords in enumerate(self._segment(lines)):
            parts = [subwords] if subwords else []
            if len(subwords) > self._longest:
                parts = self._cut(lines[number], number + 1)
            owners.append(list(range(len(sentences), len(sentences) + len(parts))))
            sentences += parts
        return sentences, owners

    def _cut(self, line: str, number: int) -> list[list[str]]:
        """A long line's parts.

        Raises:
            UserError: a sentence of it is too long alone.
        """
        parts = self._segment(
            cut(normalise(line), lambda part: len(self._segment([part])[0]) <= self._longest)
        )
        for part in parts:
            if len(part) > self._longest:
                raise LongSentenceError(number, len(part), self._longest)
        return parts

    def _hypotheses(
        self,
        sentences: list[list[str]],
        owners: list[list[int]],
        decoding: Decoding,
        count: int,
        report: Report,
    ) -> Iterator[list[list[Hypothesis]]]:
        """Of each line, the hypotheses of its parts."""
        found: dict[int, list[Hypothesis]] = {}
        for places in batches(sentences, decoding.max_tokens):
            batch = [sentences[place] for place in places]
            results = self._engine.translate(batch, decoding, count)
            found.update(zip(places, results, strict=True))
            report(len(found) * len(owners) // len(sentences))
        return iter([[found[place] for place in places] for places in owners])

    def _joined(self, parts: list[list[Hypothesis]], count: int) -> list[Translation]:
        """The translations of a line from those of its parts."""
        if not parts:
            return [Translation("", 0.0)]
        space = " " if has_spaces(self.languages[1]) else ""
        joined = []
        for rank in range(min(count, *map(len, parts))):
            ranked = [part[rank] for part in parts]
            texts = self._text.plain([each.subwords for each in ranked])
            joined.append(Translation(space.join(texts), sum(each.score for each in ranked)))
        return joined


class LongSentenceError(UserError):
    """A sentence that the model cannot take; ``line``: the number of its line, from 1."""

    def __init__(self, line: int, subwords: int, longest: int) -> None:
        self.line, self.subwords, self.longest = line, subwords, longest
        super().__init__(f"line {line}: {self.reason}")

    @property
    def reason(self) -> str:
        """What is wrong, without where."""
        return (
            f"a sentence of {self.subwords:,} subwords, but the model takes at most "
            f"{self.longest:,}: break it up"
        )
