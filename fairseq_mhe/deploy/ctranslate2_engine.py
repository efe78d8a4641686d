"""Translation by CTranslate2 of a model in its format; imports neither torch nor fairseq."""

import os
from pathlib import Path
from typing import NamedTuple

from fairseq_mhe.common.errors import UserError
from fairseq_mhe.common.progress import say
from fairseq_mhe.common.system import cores, exact_int8, require
from fairseq_mhe.runs.decoding import Decoding


class Translation(NamedTuple):
    """Text, of an engine subwords with spaces between, and its score: the natural log probability
    of subwords and end, divided by their number to the power of the length penalty. A line that was
    cut has its parts' sum.
    """

    text: str
    score: float


class CTranslate2Engine:
    """On a GPU where CTranslate2 sees one; a translation has ``longest`` tokens with its end."""

    name = "ctranslate2"

    def __init__(
        self, folder: Path, longest: int, precision: str, cpu: bool, threads: int | None
    ) -> None:
        require("ctranslate2")
        import ctranslate2

        on_gpu = not cpu and ctranslate2.get_cuda_device_count() > 0
        if precision == "int8" and not on_gpu and not exact_int8():
            say(
                "CTranslate2's int8 loses precision on this processor, which has no VNNI: leave "
                "--precision int8 out, or choose --engine fairseq"
            )
        if threads is None:  # CTranslate2 reads the variable if given 0
            threads = 0 if "OMP_NUM_THREADS" in os.environ else cores()
        device = "cuda" if on_gpu else "cpu"
        products = "int8" if precision == "int8" else "default"
        options = {"compute_type": products, "intra_threads": threads}
        try:
            self._translator = ctranslate2.Translator(str(folder), device, **options)
            if on_gpu:  # only a translation opens CUDA's libraries, which may be missing
                self._translator.translate_batch([["a"]], max_decoding_length=1)
        except (RuntimeError, ValueError) as error:
            raise UserError(f"CTranslate2 cannot load {folder}: {error}") from None
        self._longest = longest

    def translate(
        self, sentences: list[list[str]], decoding: Decoding, nbest: int
    ) -> list[list[Translation]]:
        """The ``nbest`` hypotheses of each sentence of a batch, without its end, best first."""
        # fairseq's limit of a batch, by its longest source; neither end is counted.
        source = max(map(len, sentences)) + 1
        limit = min(
            int(decoding.max_len_a * source + decoding.max_len_b), self._longest - 1
        )
        results = self._translator.translate_batch(
            sentences,
            beam_size=decoding.beam,
            num_hypotheses=nbest,
            length_penalty=decoding.lenpen,
            max_input_length=0,
            max_decoding_length=max(1, limit),
            return_scores=True,
        )
        return [
            list(map(Translation, map(" ".join, result.hypotheses), result.scores))
            for result in results
        ]
