"""``fairseq-mhe attention-map``: where each head of each layer of a model looks in a sentence."""

import argparse
import contextlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import torch
from fairseq.data import Dictionary
from fairseq.dataclass.configs import GenerationConfig
from fairseq.tasks import FairseqTask
from matplotlib.figure import Figure
from torch import Tensor, nn

from fairseq_mhe.attention import Attention
from fairseq_mhe.checkpoints.checkpoint import Source, open_source
from fairseq_mhe.common.errors import UserError
from fairseq_mhe.common.files import atomic_path
from fairseq_mhe.convert.compare import dictionary_of, task_of
from fairseq_mhe.models.build import sublayers
from fairseq_mhe.models.families import TRANSLATION
from fairseq_mhe.models.options import PLACES
from fairseq_mhe.models.transformer import TransformerMHEModel
from fairseq_mhe.prepare.data_folder import open_data
from fairseq_mhe.prepare.manifest import TEXT
from fairseq_mhe.prepare.text_processing import TextProcessing, normalise
from fairseq_mhe.runs.job import read_job

#: How a sentence is translated where no translation is given: Vaswani et al. 2017, section 6.1.
DECODING = GenerationConfig(beam=4, lenpen=0.6, max_len_a=1, max_len_b=50)
FORMATS = (".png", ".pdf", ".svg")
DPI = 150
#: Inches: of a token, of the smallest and the largest panel, and for names at the sides.
TOKEN, SMALLEST, LARGEST, MARGIN = 0.15, 1.0, 4.0, 1.5
FONT_SIZE = 8


@dataclass(frozen=True)
class AttentionMap:
    """The weights of one place of a model for one sentence.

    ``layers``: (H, T, S) of each layer, with H heads, T queries and S keys; ``queries``: the T
    tokens that the encoder reads or the decoder writes next; ``keys``: the S tokens that they look
    at.
    """

    layers: tuple[Tensor, ...]
    queries: tuple[str, ...]
    keys: tuple[str, ...]


def encode(
    text: str, side: int, processing: TextProcessing, dictionary: Dictionary, longest: int
) -> Tensor:
    """A plain sentence as fairseq's tokens (1, S) with its end, prepared as the model's text.

    ``side``: 0 for the source, 1 for the target; ``longest``: tokens that the model takes at most.

    Raises:
        UserError: the text is empty or too long.
    """
    name = ("sentence", "target")[side]
    (pieces,) = processing.segment([text], side)
    if not pieces:
        raise UserError(f"the {name} is empty: give some text")
    encoded = dictionary.encode_line(pieces, add_if_not_exist=False, append_eos=True).long()
    if len(encoded) > longest:
        raise UserError(
            f"the {name} has {len(encoded)} subwords, but the model takes at most {longest}: "
            "shorten it"
        )
    return encoded.unsqueeze(0)


def translate(model: TransformerMHEModel, task: FairseqTask, source: Tensor) -> Tensor:
    """The best translation (1, T) that fairseq's beam search finds of ``source`` (1, S)."""
    generator = task.build_generator([model], DECODING)
    net_input = {"src_tokens": source, "src_lengths": torch.tensor([source.size(1)])}
    ((best, *_),) = task.inference_step(
        generator, [model], {"net_input": net_input, "id": torch.tensor([0])}
    )
    return best["tokens"].unsqueeze(0)


@torch.no_grad()
def attention_map(
    model: TransformerMHEModel,
    task: FairseqTask,
    place: str,
    source: Tensor,
    target: Tensor | None,
) -> AttentionMap:
    """The weights of a place (of ``PLACES``) for a sentence (1, S) and a translation (1, T) of it.

    The encoder's need no translation.
    """
    keys = queries = _symbols(source, task.source_dictionary)
    with _kept(model, place) as layers:
        memory = model.encoder(source, torch.tensor([source.size(1)]))
        if target is not None:
            read = target.roll(
                1, dims=1
            )  # the decoder reads the end first, then all but the end
            model.decoder(read, memory)
            queries = _symbols(target, task.target_dictionary)
            if place == "decoder":
                keys = _symbols(read, task.target_dictionary)
    return AttentionMap(tuple(layers), queries, keys)


@torch.no_grad()
def language_map(
    source: Source, dictionary: Dictionary, sentence: Tensor, place: str
) -> AttentionMap:
    """The weights of a language model's place for a sentence (1, T) with its end.

    A masked model reads ``<s>`` before it; a causal one the end, and is shown with what it writes.
    """
    read, written = sentence.roll(1, dims=1), sentence
    if source.family.places == ("encoder",):
        bos = torch.tensor([[dictionary.bos()]])
        read = written = torch.cat((bos, sentence), dim=1)  # (1, T + 1)
    with _kept(source.model, place) as layers:
        source.model(src_tokens=read)
    return AttentionMap(
        tuple(layers), _symbols(written, dictionary), _symbols(read, dictionary)
    )


@contextlib.contextmanager
def _kept(model: nn.Module, place: str) -> Iterator[list[Tensor]]:
    """What the sublayers of a place return meanwhile for ``need_head_weights``: (H, T, S) each."""
    layers: list[Tensor] = []

    def ask(module: Attention, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        return args, {**kwargs, "need_head_weights": True}

    def keep(module: Attention, args: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
        layers.append(output[1].squeeze(1))  # (H, 1, T, S) of one sentence

    with contextlib.ExitStack() as hooks:
        for _, where, module in sublayers(model):
            if where == place:
                hooks.enter_context(module.register_forward_pre_hook(ask, with_kwargs=True))
                hooks.enter_context(module.register_forward_hook(keep))
        yield layers


def _symbols(tokens: Tensor, dictionary: Dictionary) -> tuple[str, ...]:
    return tuple(dictionary[index] for index in tokens[0].tolist())


def draw(shown: AttentionMap, title: str, output: Path) -> None:
    """Draw a panel for each layer (downwards) and head (to the right).

    The suffix of ``output``, one of ``FORMATS``, is the picture's format.

    Raises:
        UserError: the file cannot be written.
    """
    rows, columns = len(shown.layers), shown.layers[0].size(0)
    width, height = (
        min(LARGEST, max(SMALLEST, TOKEN * len(tokens)))
        for tokens in (shown.keys, shown.queries)
    )
    figure = Figure(
        figsize=(columns * width + MARGIN, rows * height + MARGIN), layout="constrained"
    )
    panels = figure.subplots(rows, columns, squeeze=False, sharex=True, sharey=True)
    style: dict[str, Any] = {"fontsize": FONT_SIZE, "parse_math": False}
    for layer, weights in enumerate(shown.layers):
        for head, panel in enumerate(panels[layer]):
            image = panel.imshow(weights[head], "Blues", aspect="auto", vmin=0, vmax=1)
            panel.tick_params(length=0)
        panels[layer][0].set_ylabel(f"layer {layer + 1}")
        panels[layer][0].set_yticks(*labels(shown.queries, height), **style)
    for head in range(columns):
        panels[0][head].set_title(f"head {head + 1}")
        panels[-1][head].set_xticks(*labels(shown.keys, width), rotation=90, **style)
    figure.colorbar(image, ax=panels, pad=0.01, fraction=0.02, label="attention weight")
    figure.suptitle(f"{title}\nqueries downwards, keys across", **style)
    with atomic_path(output) as temporary:
        figure.savefig(temporary, dpi=DPI, format=output.suffix[1:], bbox_inches="tight")


def labels(tokens: Sequence[str], size: float) -> tuple[range, Sequence[str]]:
    """Places and tokens along an axis of ``size`` inches, so few that none overlap."""
    step = -(-len(tokens) * FONT_SIZE // int(size * 72))  # 72 points an inch
    return range(0, len(tokens), step), tokens[::step]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of ``fairseq-mhe attention-map``."""
    add = parser.add_argument
    model = "a trained model, stock or ours: a run folder, or a checkpoint"
    add("checkpoint", type=Path, metavar="CHECKPOINT", help=model)
    data = "the data folder that it was trained on (a run folder of translation knows its own)"
    add("--data", type=Path, help=data)
    sentence = "plain text in the source language, or in a language model's"
    add("--sentence", required=True, help=sentence)
    target = "its translation, as plain text (default: the model's own, by beam search)"
    add("--target", help=target)
    place = "which attention (default: cross; a language model has one)"
    add("--place", choices=PLACES, help=place)
    files = ", ".join(FORMATS)
    add("--out", type=Path, required=True, metavar="FILE", help=f"the picture: a {files} file")


def run(args: argparse.Namespace) -> None:
    """Draw the picture and say what is in it."""
    if args.out.suffix not in FORMATS:
        raise UserError(f"--out {args.out} must end in {', '.join(FORMATS)}")
    source = open_source(args.checkpoint)
    translation = source.family is TRANSLATION
    place = args.place or source.family.places[-1]
    if args.target is not None and not (translation and place != "encoder"):
        raise UserError(f"--target has no effect on {place} attention: leave it out")
    if args.data is None and not (translation and args.checkpoint.is_dir()):
        raise UserError(f"give the data folder that {args.checkpoint} was trained on (--data)")
    folder = args.data or read_job(args.checkpoint).place("data")
    if translation:
        shown = _of_translation(source, folder, place, args.sentence, args.target)
    else:
        shown = _of_language_model(source, folder, place, args.sentence)
    if not shown.layers:
        raise UserError(f"{args.checkpoint} has no {place} attention: give another --place")
    kind = source.attention[place]
    draw(shown, f"{place} attention, {kind}: {normalise(args.sentence)}", args.out)
    size, heads = len(shown.layers), shown.layers[0].size(0)
    print(f"{args.out}: {place} attention ({kind}), {size} layers, {heads} heads")


def _of_translation(
    opened: Source, folder: Path, place: str, sentence: str, translation: str | None
) -> AttentionMap:
    """The map; prints the translation where it is the model's own."""
    data = open_data(folder)
    model, task, processing = cast(Any, opened.model), task_of(data, opened), data.processing()
    longest = model.max_positions()
    source = encode(sentence, 0, processing, task.source_dictionary, longest[0])
    target = None
    if translation is not None:
        target = encode(translation, 1, processing, task.target_dictionary, longest[1])
    elif place != "encoder":
        target = translate(model, task, source)
        print(*data.detokenise([task.target_dictionary.string(target[0])]))
    return attention_map(model, task, place, source, target)


def _of_language_model(opened: Source, folder: Path, place: str, sentence: str) -> AttentionMap:
    data = open_data(folder, TEXT)
    dictionary, longest = (
        dictionary_of(data, opened),
        cast(Any, opened.model).max_positions() - 1,
    )
    tokens = encode(sentence, 0, data.processing(), dictionary, longest)
    return language_map(opened, dictionary, tokens, place)
