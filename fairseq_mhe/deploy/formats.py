"""Writing a model into an empty folder, for fairseq and for CTranslate2."""

import contextlib
import tempfile
from collections.abc import Iterator
from pathlib import Path

from safetensors import SafetensorError
from safetensors.torch import save_model

from fairseq_mhe.checkpoints.safe_load import plain
from fairseq_mhe.common.errors import UserError
from fairseq_mhe.common.files import write_json
from fairseq_mhe.common.progress import say
from fairseq_mhe.convert.material import task_of
from fairseq_mhe.convert.to_ctranslate2 import agreement, convert
from fairseq_mhe.deploy.trained import OPTIONS, WEIGHTS, Trained

#: Sentences of the test set that fairseq and CTranslate2 both translate.
_COMPARED = 50


@contextlib.contextmanager
def saving_weights(path: Path) -> Iterator[None]:
    """Let safetensors write ``path`` inside: one clear line if it cannot, readable by all after.

    Raises:
        UserError: safetensors cannot write.
    """
    try:
        yield
    except SafetensorError as error:
        raise UserError(f"cannot write {path.name}: {error}") from None
    path.chmod(0o644)  # safetensors makes it private


def write_fairseq(trained: Trained, folder: Path) -> None:
    """model.safetensors, config.json with the model's options, and both dictionaries.

    Raises:
        UserError: as `saving_weights`.
    """
    with saving_weights(folder / WEIGHTS):
        save_model(trained.source.model, str(folder / WEIGHTS))
    write_json(folder / OPTIONS, plain(trained.source.options))
    for language, dictionary in zip(trained.text.languages, trained.dictionaries, strict=True):
        dictionary.save(str(folder / f"dict.{language}.txt"))


def write_ctranslate2(trained: Trained, folder: Path) -> None:
    """CTranslate2's model in float32, compared with fairseq's if the test set is at hand.

    Raises:
        UserError: CTranslate2 is not installed, cannot hold the model, or translates otherwise.
    """
    with tempfile.TemporaryDirectory(dir=folder) as parent:  # CTranslate2 makes its own folder
        model = Path(parent) / "model"
        languages = trained.text.languages
        convert(trained.source, trained.dictionary_folder, languages, model, "float32", True)
        for path in model.iterdir():
            path.rename(folder / path.name)
    if trained.data is not None:
        task = task_of(trained.data, trained.source)
        found = agreement(trained.source, task, folder, "test", _COMPARED, threads=1)
        found.check()
        say(
            f"CTranslate2 translates {found.greedy} of {found.sentences} sentences as fairseq does "
            f"(greedy), {found.beam} with the beam"
        )
