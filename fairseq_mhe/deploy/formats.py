"""Writing a model into a new folder, for fairseq and for CTranslate2."""

from pathlib import Path

from safetensors.torch import save

from fairseq_mhe.checkpoints.safe_load import plain
from fairseq_mhe.common.files import write_json
from fairseq_mhe.common.progress import say
from fairseq_mhe.convert.material import task_of
from fairseq_mhe.convert.to_ctranslate2 import agreement, convert
from fairseq_mhe.deploy.trained import OPTIONS, WEIGHTS, Trained

#: Sentences of the test set that fairseq and CTranslate2 both translate.
_COMPARED = 50


def write_fairseq(trained: Trained, folder: Path) -> None:
    """model.safetensors, config.json with the model's options, and both dictionaries.

    Weights that are one tensor are stored once; the file's metadata name the others.
    """
    folder.mkdir()
    stored, tied = {}, {}
    names: dict[int, str] = {}  # address -> the name under which it is stored
    for name, weight in trained.source.model.state_dict().items():
        first = names.setdefault(weight.data_ptr(), name)
        if first == name:
            stored[name] = weight.contiguous()
        else:
            tied[name] = first
    (folder / WEIGHTS).write_bytes(save(stored, metadata=tied))
    write_json(folder / OPTIONS, plain(trained.source.options))
    for language, dictionary in zip(trained.text.languages, trained.dictionaries, strict=True):
        dictionary.save(str(folder / f"dict.{language}.txt"))


def write_ctranslate2(trained: Trained, folder: Path) -> None:
    """CTranslate2's model in float32, compared with fairseq's on the data's test set.

    Raises:
        UserError: CTranslate2 is not installed, cannot hold the model, or translates otherwise.
    """
    languages = trained.text.languages
    convert(trained.source, trained.dictionary_folder, languages, folder, "float32", True)
    if trained.data is not None:
        task = task_of(trained.data, trained.source)
        result = agreement(trained.source, task, folder, "test", _COMPARED)
        result.check()
        say(
            f"CTranslate2 translates {result.greedy} of {result.sentences} sentences as fairseq "
            f"does (greedy), {result.beam} with the beam"
        )
