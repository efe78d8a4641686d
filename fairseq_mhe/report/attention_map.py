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
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from torch import Tensor, nn

from fairseq_mhe.attention import Attention
from fairseq_mhe.checkpoints.checkpoint import Source, open_source
from fairseq_mhe.common.errors import UserError
from fairseq_mhe.common.files import atomic_path
from fairseq_mhe.convert.material import dictionary_of, task_of
from fairseq_mhe.models.build import sublayers
from fairseq_mhe.models.families import TRANSLATION
from fairseq_mhe.models.options import PLACES, kinds
from fairseq_mhe.models.transformer import TransformerMHEModel
from fairseq_mhe.prepare.clean import normalise
from fairseq_mhe.prepare.data_folder import open_prepared, open_text
from fairseq_mhe.prepare.text_processing import TextProcessing
from fairseq_mhe.runs.job import read_job

#: How a sentence is translated where no translation is given: Vaswani et al. 2017, section 6.1.
DECODING = GenerationConfig(beam=4, lenpen=0.6, max_len_a=1, max_len_b=50)
FORMATS = (".png", ".pdf", ".svg")
DPI = 150
#: Inches: of a token, of the smallest and the largest panel, and between panels.
TOKEN, SMALLEST, LARGEST, GAP = 0.15, 1.0, 4.0, 0.1
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
    model: TransformerMHEModel, task: FairseqTask, place: str, source: Tensor, target: Tensor | None
) -> AttentionMap:
    """The weights of a place (of ``PLACES``) for a sentence (1, S) and a translation (1, T) of it.

    The encoder's need no translation.
    """
    keys = queries = _symbols(source, task.source_dictionary)
    with _kept(model, place) as layers:
        memory = model.encoder(source, torch.tensor([source.size(1)]))
        if target is not None:
            read = target.roll(1, dims=1)  # the decoder reads the end first, then all but the end
            model.decoder(read, memory)
            queries = _symbols(target, task.target_dictionary)
            if place == "decoder":
                keys = _symbols(read, task.target_dictionary)
    return AttentionMap(tuple(layers), queries, keys)


@torch.no_grad()
def language_map(source: Source, dictionary: Dictionary, sentence: Tensor) -> AttentionMap:
    """The weights of a language model for a sentence (1, T) with its end.

    A masked model reads ``<s>`` before it; a causal one the end, and is shown with what it writes.
    """
    (place,) = source.family.places
    masked = place == "encoder"
    if masked:
        read = torch.cat((torch.tensor([[dictionary.bos()]]), sentence), dim=1)  # (1, T + 1)
    else:
        read = sentence.roll(1, dims=1)
    with _kept(source.model, place) as layers:
        source.model(src_tokens=read)
    written = _symbols(read if masked else sentence, dictionary)
    return AttentionMap(tuple(layers), written, _symbols(read, dictionary))


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
        min(LARGEST, max(SMALLEST, TOKEN * len(labels))) for labels in (shown.keys, shown.queries)
    )
    figure = Figure(figsize=(columns * (width + GAP), rows * (height + GAP)))
    panels = figure.subplots(rows, columns, squeeze=False, sharex=True, sharey=True)
    figure.subplots_adjust(0, 0, 1, 1, wspace=GAP / width, hspace=GAP / height)
    look: dict[str, Any] = {"cmap": "Blues", "aspect": "auto", "interpolation": "nearest"}
    for layer, weights in enumerate(shown.layers):
        for head, panel in enumerate(panels[layer]):
            image = panel.imshow(weights[head], vmin=0, vmax=1, **look)
            panel.tick_params(length=0)
        panels[layer][0].set_ylabel(f"layer {layer + 1}", fontsize=FONT_SIZE + 2)
        _label(panels[layer][0], "y", shown.queries, height)
    for head, panel in enumerate(panels[0]):
        panel.set_title(f"head {head + 1}", fontsize=FONT_SIZE + 2)
        _label(panels[-1][head], "x", shown.keys, width)
    # Outside the figure's frame, in inches; the tight box below takes it in.
    wide, high = figure.get_size_inches()
    bar = figure.colorbar(image, cax=figure.add_axes((1 + GAP / wide, 0, GAP / wide, 1)))
    bar.ax.tick_params(labelsize=FONT_SIZE)
    bar.set_label("attention weight", fontsize=FONT_SIZE + 2)
    heading = f"{title}\nqueries downwards, keys across"
    figure.text(0, 1 + 0.35 / high, heading, fontsize=FONT_SIZE + 2, parse_math=False)
    form = output.suffix[1:]
    with atomic_path(output) as temporary:
        figure.savefig(temporary, dpi=DPI, format=form, bbox_inches="tight", pad_inches=0.15)


def _label(panel: Axes, axis: str, tokens: Sequence[str], size: float) -> None:
    """Write the tokens along an axis of ``size`` inches, so few that none overlap."""
    step = -(-len(tokens) * FONT_SIZE // int(size * 72))  # 72 points an inch
    put, rotation = (panel.set_xticks, 90) if axis == "x" else (panel.set_yticks, 0)
    style: dict[str, Any] = {"fontsize": FONT_SIZE, "rotation": rotation, "parse_math": False}
    put(range(0, len(tokens), step), tokens[::step], **style)


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
    if args.data is None:
        if not args.checkpoint.is_dir() or source.family is not TRANSLATION:
            raise UserError(f"give the data folder that {args.checkpoint} was trained on (--data)")
        args.data = read_job(args.checkpoint).place("data")
    if source.family is TRANSLATION:
        shown, place, kind = _of_translation(args, source)
    else:
        shown, place, kind = _of_language_model(args, source)
    if not shown.layers:
        raise UserError(f"{args.checkpoint} has no {place} attention: give another --place")
    draw(shown, f"{place} attention, {kind}: {normalise(args.sentence)}", args.out)
    layers, heads = len(shown.layers), shown.layers[0].size(0)
    print(f"{args.out}: {place} attention ({kind}), {layers} layers, {heads} heads")


def _of_translation(args: argparse.Namespace, opened: Source) -> tuple[AttentionMap, str, str]:
    """The map, its place and kind; the translation is printed where it is the model's own."""
    place = args.place or "cross"
    if place == "encoder" and args.target is not None:
        raise UserError("--target has no effect on the encoder's attention: leave it out")
    data = open_prepared(args.data)
    model, task = cast(TransformerMHEModel, opened.model), task_of(data, opened)
    longest, processing = model.max_positions(), data.processing()
    source = encode(args.sentence, 0, processing, task.source_dictionary, longest[0])
    target = None
    if args.target is not None:
        target = encode(args.target, 1, processing, task.target_dictionary, longest[1])
    elif place != "encoder":
        target = translate(model, task, source)
        print(*data.detokenise([task.target_dictionary.string(target[0])]))
    return attention_map(model, task, place, source, target), place, kinds(model.cfg)[place]


def _of_language_model(args: argparse.Namespace, source: Source) -> tuple[AttentionMap, str, str]:
    (place,) = source.family.places
    for option, value in (("place", args.place), ("target", args.target)):
        if value not in (None, place):
            raise UserError(
                f"--{option} is for translation, and {args.checkpoint} is a "
                f"{source.family.stock}: leave it out"
            )
    data = open_text(args.data)
    dictionary, model = dictionary_of(data, source), source.model
    longest: int = cast(Any, model).max_positions() - 1
    sentence = encode(args.sentence, 0, data.processing(), dictionary, longest)
    return language_map(source, dictionary, sentence), place, source.attention[place]
