"""``compare-huggingface``: models exported for transformers, translating as fairseq does or not.

Greedily and by beam search, over the first sentences of a test set, from plain text to plain text;
as they are, by torch, and as ONNX models, which optimum makes of them, by onnxruntime.
"""

import argparse
import importlib.util
import tempfile
import warnings
from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

import torch
from fairseq.data import data_utils
from fairseq.sequence_generator import SequenceGenerator

from fairseq_mhe.common.arguments import positive
from fairseq_mhe.common.errors import UserError
from fairseq_mhe.common.files import output_folder
from fairseq_mhe.common.progress import say
from fairseq_mhe.common.system import installed
from fairseq_mhe.convert.difference import quiet_fairseq
from fairseq_mhe.deploy.export import export
from fairseq_mhe.deploy.huggingface_engine import import_transformers, quiet_transformers
from fairseq_mhe.deploy.tokenizer_json import make_tokenizer
from fairseq_mhe.deploy.trained import Trained, open_trained
from fairseq_mhe.prepare.text import read_lines
from studies.study import Report, Study

_PACKAGES = ("transformers", "tokenizers", "optimum", "optimum-onnx", "onnxruntime")
_BEAMS = (1, 5)
_BATCH = 32
#: Most tokens of a translation, for both: fairseq's limit depends on the source's length.
_LONGEST = 200
#: Two translations are as good as equal to fairseq's model below this: in logarithms of
#: probabilities, of the first word that differs (greedy) or of the whole by its length (beam).
_TIE = 1e-3
_TITLES = (
    *("model", "class", "subwords", "beam", "sentences", "same input", "same text", "ties"),
    "endless",
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of ``compare-huggingface``."""
    add = parser.add_argument
    told = "run folders, or checkpoints with --data"
    add("models", type=Path, nargs="+", metavar="MODEL", help=told)
    add("--data", type=Path, metavar="DATA", help="the models' data folder")
    add("--subset", default="test", help="what is translated (default: %(default)s)")
    told = "the first N of it (default: %(default)s)"
    add("--sentences", type=positive, default=500, metavar="N", help=told)
    told = "as ONNX models by onnxruntime too (pip install 'optimum[onnxruntime]')"
    add("--onnx", action="store_true", help=told)
    out = Path("runs/huggingface")
    add("--out", type=Path, default=out, help="its folder (default: %(default)s)")


def run(args: argparse.Namespace) -> None:
    """Export, translate by both, and report."""
    transformers = import_transformers()
    if args.onnx and importlib.util.find_spec("optimum") is None:
        raise UserError(
            "optimum is not installed, which makes ONNX models: pip install 'optimum[onnxruntime]' "
            "in an environment of its own (docs/deploy.md says with which transformers)"
        )
    out, results, rows = output_folder(args.out), [], []
    with quiet_fairseq():
        for path in args.models:
            trained = open_trained(path, args.data)
            for found in _compare(transformers, trained, args):
                results.append({"model": path.name, **found})
                rows.append([str(value) for value in list(results[-1].values())[: len(_TITLES)]])
                say(
                    ", ".join(
                        f"{title} {cell}" for title, cell in zip(_TITLES, rows[-1], strict=True)
                    )
                )
    notes = [
        "same input: sentences whose words have fairseq's numbers; same text: translations that "
        "are letter by letter fairseq's; ties: of the others, those that fairseq's model finds "
        f"equal but for {_TIE} in logarithms of probabilities; endless: those that fairseq cuts at "
        f"{_LONGEST} tokens, where it counts the end's probability and transformers does not",
        ", ".join(f"{name} {version}" for name, version in installed(_PACKAGES).items()),
    ]
    title = "Translations of exported models by transformers, beside fairseq's"
    tables = [("Translations", _TITLES, rows)]
    study = Study(out, trained.data, args.subset, False, args.typed)  # type: ignore[arg-type]
    Report("huggingface", title, {"models": results}, tables, notes).write(study)


def _compare(
    transformers: Any, trained: Trained, args: argparse.Namespace
) -> Iterator[dict[str, Any]]:
    """What is the same, for each beam, of each form of the model."""
    assert trained.data is not None  # noqa: S101 - open_trained has opened it
    lines = list(islice(read_lines(trained.data.text(args.subset, 0)), args.sentences))
    words = trained.dictionaries[0]
    segmented = trained.text.segment(lines)
    sources = [words.encode_line(line, add_if_not_exist=False).long() for line in segmented]
    with tempfile.TemporaryDirectory() as folder:
        bundle = Path(folder) / "bundle"
        export(trained, "huggingface", bundle)
        with quiet_transformers(transformers):
            tokenizer = transformers.AutoTokenizer.from_pretrained(bundle)
            models = [transformers.AutoModelForSeq2SeqLM.from_pretrained(bundle).eval()]
            models += [_onnx(bundle)] if args.onnx else []
    rows = make_tokenizer(trained.text, words).rows
    read = [
        [words.unk() if rows[token] is None else rows[token] for token in tokens]
        for tokens in tokenizer(lines)["input_ids"]
    ]
    same_input = sum(one == other.tolist() for one, other in zip(read, sources, strict=True))
    for beam in _BEAMS:
        ours = _by_fairseq(trained, sources, beam)
        for model in models:
            theirs = _by_transformers(tokenizer, model, lines, beam)
            yield {
                "class": type(model).__name__,
                "subwords": trained.text.model.kind,
                "beam": beam,
                "sentences": len(lines),
                "same_input": same_input,
                **_same(
                    trained,
                    beam,
                    lines,
                    sources,
                    ours,
                    [text for text, _ in theirs],
                    [[rows[token] for token in tokens] for _, tokens in theirs],
                ),
            }


def _onnx(bundle: Path) -> Any:
    """The bundle's model for onnxruntime."""
    from optimum.onnxruntime import ORTModelForSeq2SeqLM

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch's tracer on transformers' code
        return ORTModelForSeq2SeqLM.from_pretrained(bundle, export=True)


def _same(
    trained: Trained,
    beam: int,
    lines: Sequence[str],
    sources: Sequence[torch.Tensor],
    ours: Sequence[list[int]],
    theirs: Sequence[str],
    tokens: Sequence[list[int | None]],
) -> dict[str, Any]:
    """How many translations are fairseq's, and how the others differ.

    ``ours`` and ``tokens`` are numbers of fairseq's dictionary, their ends included.
    """
    words = trained.dictionaries[0]
    text = trained.text.plain(" ".join(words[word] for word in line[:-1]) for line in ours)
    differ = [place for place in range(len(lines)) if text[place] != theirs[place]]
    exponent = trained.decoding.lenpen if beam > 1 else None
    margins = [
        _margin(trained, sources[place], ours[place], tokens[place], exponent) for place in differ
    ]
    endless = [place for place in differ if len(ours[place]) > _LONGEST]
    return {
        "same_text": len(lines) - len(differ),
        "ties": sum(
            margin < _TIE and place not in endless
            for margin, place in zip(margins, differ, strict=True)
        ),
        "endless": len(endless),
        "differing": [
            {"source": lines[place], "fairseq": text[place], "transformers": theirs[place]}
            for place in differ
        ],
        "margins": margins,
    }


def _batches(lengths: Sequence[int]) -> Iterator[list[int]]:
    """Places of sentences of similar lengths."""
    order = sorted(range(len(lengths)), key=lengths.__getitem__)
    for start in range(0, len(order), _BATCH):
        yield order[start : start + _BATCH]


def _by_fairseq(trained: Trained, sources: Sequence[torch.Tensor], beam: int) -> list[list[int]]:
    """The best hypothesis of each sentence, with its end."""
    words, decoding = trained.dictionaries[0], trained.decoding
    model = trained.source.model
    search = SequenceGenerator(
        [model], words, beam_size=beam, max_len_a=0, max_len_b=_LONGEST, len_penalty=decoding.lenpen
    )
    found: dict[int, list[int]] = {}
    for places in _batches([len(source) for source in sources]):
        some = [sources[place] for place in places]
        net_input = {
            "src_tokens": data_utils.collate_tokens(some, words.pad(), left_pad=True),  # (B, S)
            "src_lengths": torch.tensor([len(source) for source in some]),
        }
        batch = {"net_input": net_input, "id": torch.tensor(places)}
        for place, best in zip(places, search.generate([model], batch), strict=True):
            found[place] = best[0]["tokens"].tolist()
    return [found[place] for place in range(len(sources))]


def _by_transformers(
    tokenizer: Any, model: Any, lines: Sequence[str], beam: int
) -> list[tuple[str, list[int]]]:
    """The translation of each line, and its tokens with their end."""
    choice = {"num_beams": beam, "early_stopping": beam > 1, "max_new_tokens": _LONGEST + 1}
    found: dict[int, tuple[str, list[int]]] = {}
    for places in _batches([len(line) for line in lines]):
        batch = tokenizer([lines[place] for place in places], return_tensors="pt", padding=True)
        with torch.inference_mode():
            made = model.generate(**batch, **choice)[:, 1:]  # (B, T), without the decoder's start
        texts = tokenizer.batch_decode(made, skip_special_tokens=True)
        for place, text, tokens in zip(places, texts, made.tolist(), strict=True):
            ended = [token for token in tokens if token != tokenizer.pad_token_id]
            found[place] = text, ended
    return [found[place] for place in range(len(lines))]


def _margin(
    trained: Trained,
    source: torch.Tensor,
    ours: Sequence[int],
    theirs: Sequence[int | None],
    exponent: float | None,
) -> float:
    """How much better fairseq's model finds the one translation than the other."""
    scores = []
    for line in (ours, theirs):
        target = torch.tensor([line])  # (1, T)
        with torch.inference_mode():
            output = trained.source.model(
                source[None], torch.tensor([len(source)]), target.roll(1, 1)
            )
            logs = output[0].log_softmax(-1)  # (1, T, V)
        scores.append(logs.gather(2, target[..., None])[0, :, 0])  # (T,)
    if exponent is None:
        pairs = zip(ours, theirs, strict=False)
        first = next((place for place, (a, b) in enumerate(pairs) if a != b), None)
        return float("inf") if first is None else abs(float(scores[0][first] - scores[1][first]))
    one, other = (float(score.sum()) / len(score) ** exponent for score in scores)
    return abs(one - other)
