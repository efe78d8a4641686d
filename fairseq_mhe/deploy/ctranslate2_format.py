"""The format that CTranslate2 reads, with heads that are shared stored once."""

from dataclasses import dataclass
from pathlib import Path

from fairseq_mhe.common.progress import say
from fairseq_mhe.convert.material import task_of
from fairseq_mhe.convert.to_ctranslate2 import agreement, convert
from fairseq_mhe.deploy.trained import Trained
from fairseq_mhe.prepare.languages import base_code
from fairseq_mhe.prepare.text_processing import TextProcessing

#: Sentences of the test set that are translated by both.
_COMPARED = 50
_SUBSET = "test"
_TOKENISE = "tokens.tokenize({text}, return_str=True, escape={escaped})"


def write(trained: Trained, folder: Path) -> None:
    """CTranslate2's model in float32, compared with fairseq's where the test set is at hand.

    Raises:
        UserError: CTranslate2 is not installed, cannot hold the model, or translates otherwise.
    """
    languages = trained.text.languages
    made = folder / "model"  # CTranslate2 wants to make its folder itself
    convert(trained.source, trained.dictionary_folder, languages, made, "float32", True)
    for path in made.iterdir():
        path.rename(folder / path.name)
    made.rmdir()
    if trained.data is not None:
        task = task_of(trained.data, trained.source)
        found = agreement(trained.source, task, folder, _SUBSET, _COMPARED, threads=1)
        found.check()
        say(
            f"CTranslate2 translates {found.greedy} of {found.sentences} sentences as fairseq does "
            f"(greedy), {found.beam} with the beam"
        )


@dataclass(frozen=True)
class _Text:
    """How a program turns text into words of the model and back, in Python.

    ``packages``: that it installs; ``imports``, ``tools``: lines; ``cut``: of ``line``, its words;
    ``shown``: of ``best``, the words of a translation, the text.
    """

    packages: list[str]
    imports: list[str]
    tools: list[str]
    cut: str
    shown: str


def _of_text(text: TextProcessing) -> _Text:
    source, target = map(base_code, text.languages)
    packages, imports, tools = ["ctranslate2"], [], []
    line = "line"
    if text.punctuation:
        tools.append(f'marks = MosesPunctNormalizer("{source}", post_remove_control_chars=True)')
        line = f"marks.normalize({line})"
    if text.tokenised:
        packages.append("sacremoses")
        imports.append("from sacremoses import MosesDetokenizer, MosesTokenizer")
        tools.append(f'tokens, plain = MosesTokenizer("{source}"), MosesDetokenizer("{target}")')
        line = _TOKENISE.format(text=line, escaped=text.escaped)
    if text.punctuation:
        imports.append("from sacremoses import MosesPunctNormalizer")
    line += ".lower()" if text.lowercase else ""
    name = text.model.path.name
    if text.model.kind == "bpe":
        packages.append("subword-nmt")
        imports.append("from subword_nmt.apply_bpe import BPE")
        tools.append(f'subwords = BPE(open(folder / "{name}", encoding="utf-8"))')
        cut, back = f"subwords.segment({line}).split()", '" ".join([*best, ""]).replace("@@ ", "")'
    else:
        packages.append("sentencepiece")
        imports.append("from sentencepiece import SentencePieceProcessor")
        tools.append(f'subwords = SentencePieceProcessor(model_file=str(folder / "{name}"))')
        cut, back = (
            f"subwords.encode({line}, out_type=str)",
            '"".join(best).replace("\\u2581", " ")',
        )
    shown = f"{back}.strip()"
    if text.tokenised:
        shown = f"plain.detokenize({back}.split(), unescape={text.escaped})"
    return _Text(packages, imports, tools, cut, shown)


def example(trained: Trained) -> str:
    """A program that translates with CTranslate2 and the packages for text alone."""
    text, decoding = _of_text(trained.text), trained.decoding
    source, target = trained.text.languages
    longest = f"int({decoding.max_len_a:g} * (len(words) + 1) + {decoding.max_len_b})"
    longest = f"min({longest}, {trained.positions[1] - 1})"
    search = f"beam_size={decoding.beam}, length_penalty={decoding.lenpen:g}"
    lines = [
        f'"""Translate lines of {source} into {target}: pip install {" ".join(text.packages)}."""',
        "",
        "import sys",
        "import unicodedata",
        "from pathlib import Path",
        "",
        "import ctranslate2",
        *text.imports,
        "",
        "folder = Path(__file__).parent",
        *text.tools,
        "translator = ctranslate2.Translator(str(folder))",
        'for line in sys.argv[1:] or ["Hello."]:',
        '    line = " ".join(unicodedata.normalize("NFC", line).split())',
        '    line = "".join(c for c in line if unicodedata.category(c) != "Cc")',
        f"    words = {text.cut}",
        f"    longest = {longest}",
        f"    search = dict({search}, max_input_length=0, max_decoding_length=longest)",
        "    best = translator.translate_batch([words], **search)[0].hypotheses[0]",
        f"    print({text.shown})",
    ]
    return "\n".join([*lines, ""])
