"""Translate by CTranslate2 with a model in its format, without importing torch or fairseq."""

from operator import itemgetter
from pathlib import Path
from typing import NamedTuple

from fairseq_mhe.common.errors import UserError
from fairseq_mhe.common.progress import say
from fairseq_mhe.common.system import cores, cpu_flags, omp_threads, require
from fairseq_mhe.runs.decoding import Decoding

#: The message about a model whose weights are finite, but too large.
NOT_FINITE = (
    "the scores of translations are not finite, as after a training that diverged: use an earlier "
    "checkpoint"
)


class Translation(NamedTuple):
    """A hypothesis: its text (an engine returns subwords with spaces between them), and its score.

    The score is the natural log probability of the subwords and the end of the sentence, divided by
    their number to the power of the length penalty; of a line in parts, their sum. CTranslate2's
    lacks the end if the length limit cuts all hypotheses: counting it takes nearly as long again.
    """

    text: str
    score: float


Sentences = list[list[str]]  # of each its subwords
NBest = list[list[Translation]]  # of each sentence, the best first


class CTranslate2Engine:
    """Translates by CTranslate2, on a GPU if it sees one, at most ``longest`` tokens with </s>."""

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
        device = "cuda" if on_gpu else "cpu"
        compute_type = {"fp16": "float16", "int8": "int8"}.get(precision, "default")
        threads = threads or omp_threads(cores())
        options = {"compute_type": compute_type, "intra_threads": threads}
        try:
            self._translator = ctranslate2.Translator(str(folder), device, **options)
            if on_gpu:  # only a translation shows whether CUDA's libraries are missing
                self._translator.translate_batch([["a"]], max_decoding_length=1)
        except (IndexError, RuntimeError, ValueError) as error:
            advice = "choose another precision, or get the bundle again"
            advice = "use --cpu" if on_gpu else advice
            problem = f"CTranslate2 cannot load {folder}: {error}"
            raise UserError(f"{problem}; {advice}") from None
        self._longest = longest

    def translate(self, sentences: Sentences, decoding: Decoding, nbest: int) -> NBest:
        """Return the ``nbest`` hypotheses of each sentence of a batch, best first, without </s>."""
        # As in fairseq, the batch's longest source, with </s>, sets one limit for the batch.
        longest_source = max(map(len, sentences)) + 1
        limit = int(decoding.max_len_a * longest_source + decoding.max_len_b)
        limit = min(limit, self._longest - 1)  # CTranslate2 does not count </s>
        results = self._translator.translate_batch(
            sentences,
            beam_size=decoding.beam,
            num_hypotheses=decoding.beam,
            length_penalty=decoding.lenpen,
            max_input_length=0,
            max_decoding_length=limit,
            return_scores=True,
        )
        translations: NBest = []
        for source, result in zip(sentences, results, strict=True):
            hypotheses, scores = result.hypotheses, result.scores
            ended = sum(len(words) < limit for words in hypotheses)
            if 0 < ended < len(hypotheses):
                # The scores of the others lack </s>. Why one at a time: convert/to_ctranslate2.py.
                sources = [source] * len(hypotheses)
                scored = self._translator.score_batch(
                    sources, hypotheses, max_input_length=0, max_batch_size=1
                )
                scores = []
                for one in scored:
                    length = len(one.log_probs) ** decoding.lenpen
                    scores.append(sum(one.log_probs) / length)
            found = map(Translation, map(" ".join, hypotheses), scores)
            ranked = sorted(found, key=itemgetter(1), reverse=True)
            translations.append(ranked[:nbest])
        return translations


def exact_int8() -> bool:
    """Return whether CTranslate2 adds int8 products exactly: AVX2 without VNNI has 16-bit sums."""
    # https://uxlfoundation.github.io/oneDNN/dev_guide_int8_computations.html
    flags = cpu_flags()
    return "avx2" not in flags or not flags.isdisjoint(("avx512_vnni", "avx_vnni"))
