"""Translation by CTranslate2: a model in its form, or one of ours, which is converted first."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from pathlib import Path

import torch

from fairseq_mhe.common.errors import UserError
from fairseq_mhe.common.files import read_json
from fairseq_mhe.convert.to_ctranslate2 import check_exact, check_installed, convert
from fairseq_mhe.deploy.bundle import ADVICE
from fairseq_mhe.deploy.engine import Engine, Hypothesis, most_subwords
from fairseq_mhe.deploy.trained import Trained
from fairseq_mhe.runs.decoding import Decoding

#: Files of the words that a model says: the source's too, or its own.
_VOCABULARIES = ("shared_vocabulary.json", "target_vocabulary.json")


def _on_gpu(cpu: bool) -> bool:
    import ctranslate2

    return not cpu and ctranslate2.get_cuda_device_count() > 0


class CTranslate2Engine(Engine):
    """On a GPU where CTranslate2 sees one; it may be called by several threads at once."""

    name = "ctranslate2"

    def __init__(
        self,
        folder: Path,
        longest: int,
        int8: bool = False,
        cpu: bool = False,
        threads: int | None = None,
    ) -> None:
        """Load the model in ``folder``.

        Args:
            longest: tokens of a translation at most, its end included.
            threads: None: all cores.

        Raises:
            UserError: CTranslate2 is not installed or cannot read it, or its words are not those of
                the weights.
        """
        check_installed()
        import ctranslate2

        self._cuda = _on_gpu(cpu)
        try:
            self._translator = ctranslate2.Translator(
                str(folder),
                device="cuda" if self._cuda else "cpu",
                compute_type="int8" if int8 else "default",
                intra_threads=threads or torch.get_num_threads(),  # its own default: four at most
            )
        except (RuntimeError, ValueError) as error:
            reason = " ".join(str(error).split())
            raise UserError(f"CTranslate2 cannot load {folder}: {reason}; {ADVICE}") from None
        self._longest = longest
        self._check_words(folder)

    def _check_words(self, folder: Path) -> None:
        """See that there is a row of weights for each word that can be said: CTranslate2 does not
        look.
        """
        for name in _VOCABULARIES:
            if (folder / name).is_file():
                words = len(read_json(folder / name))
                result = self._translator.translate_batch(
                    [["<unk>"]], beam_size=1, max_decoding_length=1, return_logits_vocab=True
                )
                rows = result[0].logits[0][0].shape[-1]
                if rows != words:
                    raise UserError(
                        f"{folder / name} has {words} words, the weights {rows}: they are of "
                        f"different models; {ADVICE}"
                    )

    @classmethod
    def converted(
        cls, trained: Trained, int8: bool = False, cpu: bool = False, threads: int | None = None
    ) -> CTranslate2Engine:
        """The engine of a model of ours, whose shared heads it keeps once.

        Raises:
            UserError: CTranslate2 is not installed, cannot hold the model, or does not give words
                the probabilities that fairseq gives them.
        """
        with tempfile.TemporaryDirectory(prefix="fairseq-mhe-") as folder:
            made = Path(folder) / "model"
            place = trained.dictionary_folder
            convert(trained.source, place, trained.text.languages, made, "float32", True)
            longest = trained.positions[1]
            exact = cls(made, longest, False, True, threads)
            check_exact(trained.source, trained.dictionaries, exact._translator)
            again = int8 or _on_gpu(cpu)
            return cls(made, longest, int8, cpu, threads) if again else exact

    def translate(
        self, sentences: Sequence[Sequence[str]], decoding: Decoding, nbest: int
    ) -> list[list[Hypothesis]]:
        """As `Engine.translate`."""
        results = self._translator.translate_batch(
            [list(sentence) for sentence in sentences],
            beam_size=decoding.beam,
            num_hypotheses=nbest,
            length_penalty=decoding.lenpen,
            max_input_length=0,
            max_decoding_length=most_subwords(sentences, decoding, self._longest),
            return_scores=True,
        )
        found = []
        for result in results:
            pairs = zip(result.hypotheses, result.scores, strict=True)
            found.append([Hypothesis(" ".join(words), score) for words, score in pairs])
        return found
