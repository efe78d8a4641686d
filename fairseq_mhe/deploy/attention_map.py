"""``fairseq-mhe attention-map``: where each head of each layer of a model looks in a sentence."""

from argparse import ArgumentParser, Namespace
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from fairseq.data import Dictionary
from fairseq.tasks import FairseqTask
from matplotlib.figure import Figure
from torch import Tensor, nn

from fairseq_mhe.common.errors import UserError
from fairseq_mhe.common.files import atomic_path, check_output
from fairseq_mhe.deploy.trained import FairseqEngine, Trained, open_trained
from fairseq_mhe.models.build import sublayers
from fairseq_mhe.models.options import PLACES
from fairseq_mhe.prepare.text_processing import normalise

FORMATS = (".png", ".pdf", ".svg")
DPI, FONT_SIZE = 150, 8
#: Inches: of a token, of the smallest and the largest panel, and for names at the sides.
TOKEN, SMALLEST, LARGEST, MARGIN = 0.15, 1.0, 4.0, 1.5


@dataclass(frozen=True)
class AttentionMap:
    """The weights of one place of a model for one sentence."""

    layers: Sequence[Tensor]  # (H, T, S) each
    queries: tuple[str, ...]  # T tokens that the encoder reads or the decoder writes next
    keys: tuple[str, ...]  # S tokens that they look at


def encode(trained: Trained, text: str, side: int) -> Tensor:
    """A plain sentence (side 0) or translation (1) as tokens (1, S) and their end; or UserError."""
    task, longest = trained.task, trained.positions[side]
    name = ("sentence", "target")[side]
    dictionary = (task.source_dictionary, task.target_dictionary)[side]
    (pieces,) = trained.text.segment([text], side)
    if not pieces:
        raise UserError(f"the {name} is empty: give some text")
    tokens = _tokens(pieces, dictionary)
    if tokens.size(1) > longest:
        most = f"but the model takes at most {longest}"
        raise UserError(f"the {name} has {tokens.size(1)} subwords, {most}: shorten it")
    return tokens


def translate(trained: Trained, source: Tensor) -> Tensor:
    """The best translation (1, T) of ``source`` (1, S), as ``fairseq-mhe translate`` finds it."""
    engine = FairseqEngine(trained, "float32", cpu=True)
    *pieces, _end = _symbols(source, trained.task.source_dictionary)
    (((best, _score),),) = engine.translate([pieces], trained.decoding, 1)
    return _tokens(best, trained.task.target_dictionary)


def _tokens(pieces: str, dictionary: Dictionary) -> Tensor:
    return dictionary.encode_line(pieces, add_if_not_exist=False).long().unsqueeze(0)


def attention_map(
    model: Any, task: FairseqTask, place: str, source: Tensor, target: Tensor
) -> AttentionMap:
    """The weights of a place (of ``PLACES``) for a sentence (1, S) and its translation (1, T)."""
    read = target.roll(1, dims=1)  # the decoder reads the end first, then all but the end
    layers = _weights(model, place, source, torch.tensor([source.size(1)]), read)
    sentence = _symbols(source, task.source_dictionary)
    written, before = (
        _symbols(tokens, task.target_dictionary) for tokens in (target, read)
    )
    keys = before if place == "decoder" else sentence
    return AttentionMap(layers, sentence if place == "encoder" else written, keys)


def draw_sentence(
    trained: Trained, place: str, sentence: str, translation: str | None, output: Path
) -> AttentionMap:
    """Draw and return a place's weights for plain text; no translation: the model's own."""
    source = encode(trained, sentence, 0)  # (1, S)
    target = (
        translate(trained, source)
        if translation is None
        else encode(trained, translation, 1)
    )
    shown = attention_map(trained.source.model, trained.task, place, source, target)
    kind = trained.source.attention[place]
    draw(shown, f"{place} attention, {kind}: {normalise(sentence)}", output)
    return shown


@torch.no_grad()
def _weights(model: nn.Module, place: str, *inputs: Tensor) -> list[Tensor]:
    """The weights (H, T, S) of each sublayer of a place while the model reads one sentence."""
    layers: list[Tensor] = []

    def ask(module: nn.Module, args: Any, kwargs: dict[str, Any]) -> Any:
        return args, {**kwargs, "need_head_weights": True}

    def keep(module: nn.Module, args: Any, output: tuple[Tensor, Tensor]) -> None:
        layers.append(output[1].squeeze(1))  # (H, 1, T, S) of one sentence

    with ExitStack() as hooks:
        for _, where, module in sublayers(model):
            if where == place:
                before = module.register_forward_pre_hook(ask, with_kwargs=True)
                hooks.enter_context(before)
                hooks.enter_context(module.register_forward_hook(keep))
        model(*inputs)
    return layers


def _symbols(tokens: Tensor, dictionary: Dictionary) -> tuple[str, ...]:
    return tuple(dictionary[index] for index in tokens[0].tolist())


def draw(shown: AttentionMap, title: str, output: Path) -> None:
    """Draw a panel for each layer (downwards) and head, in the format of ``output``'s suffix."""
    rows, columns = len(shown.layers), shown.layers[0].size(0)
    width, height = (
        min(LARGEST, max(SMALLEST, TOKEN * len(tokens)))
        for tokens in (shown.keys, shown.queries)
    )
    size = (columns * width + MARGIN, rows * height + MARGIN)
    figure = Figure(figsize=size, layout="constrained")
    panels = figure.subplots(rows, columns, squeeze=False, sharex=True, sharey=True)
    for layer, weights in enumerate(shown.layers):
        for head, panel in enumerate(panels[layer]):
            image = panel.imshow(weights[head], "Blues", aspect="auto", vmin=0, vmax=1)
            panel.tick_params(length=0)
        panels[layer][0].set_ylabel(f"layer {layer + 1}")
        panels[layer][0].set_yticks(**_ticks(shown.queries, height))
    for head in range(columns):
        panels[0][head].set_title(f"head {head + 1}")
        panels[-1][head].set_xticks(**_ticks(shown.keys, width), rotation=90)
    figure.colorbar(image, ax=panels, pad=0.01, fraction=0.02, label="attention weight")
    heading = f"{title}\nqueries downwards, keys across"
    figure.suptitle(heading, fontsize=FONT_SIZE, parse_math=False)
    with atomic_path(output) as temporary:
        figure.savefig(temporary, dpi=DPI, format=output.suffix[1:], bbox_inches="tight")


def _ticks(tokens: Sequence[str], size: float) -> dict[str, Any]:
    """The tokens along an axis of ``size`` inches, so small that none overlap."""
    font = {"fontsize": min(FONT_SIZE, 72 * size / len(tokens)), "parse_math": False}
    return {"ticks": range(len(tokens)), "labels": tokens, **font}


def add_arguments(parser: ArgumentParser) -> None:
    """Options of ``fairseq-mhe attention-map``."""
    add = parser.add_argument
    help_ = (
        "a trained model that translates, stock or ours: a run folder, or a checkpoint"
    )
    add("checkpoint", type=Path, metavar="CHECKPOINT", help=help_)
    add(
        "--data",
        type=Path,
        help="data folder of its training (default: the run folder's)",
    )
    add("--sentence", required=True, help="plain text in the source language")
    help_ = "its translation, as plain text (default: the model's own, by beam search)"
    add("--target", help=help_)
    add(
        "--place",
        choices=PLACES,
        default="cross",
        help="which attention (default: cross)",
    )
    add("--out", type=Path, required=True, help=f"picture: a {', '.join(FORMATS)} file")


def run(args: Namespace) -> None:
    """Draw the picture and say what is in it; print the model's own translation that it shows."""
    if args.out.suffix not in FORMATS:
        raise UserError(f"--out {args.out} must end in {', '.join(FORMATS)}")
    check_output(args.out)
    trained = open_trained(args.checkpoint, args.data)
    shown = draw_sentence(trained, args.place, args.sentence, args.target, args.out)
    if args.target is None and args.place != "encoder":
        print(*trained.text.plain([" ".join(shown.queries[:-1])]))
    kind = trained.source.attention[args.place]
    size = f"{len(shown.layers)} layers, {shown.layers[0].size(0)} heads"
    print(f"{args.out}: {args.place} attention ({kind}), {size}")
