"""``fairseq-mhe attention-map``: draw where each attention head of a model looks in a sentence."""

import warnings
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
from fairseq_mhe.common.progress import say
from fairseq_mhe.deploy.trained import FairseqEngine, Trained, open_trained
from fairseq_mhe.models.options import PLACES, sublayers
from fairseq_mhe.prepare.text_processing import normalise

FORMATS = (".png", ".pdf", ".svg")
DPI, FONT_SIZE = 150, 8
#: Sizes in inches: a token, the shortest and longest side of a panel, the margin for tokens.
TOKEN, SHORTEST, LONGEST, MARGIN = 0.15, 1.0, 4.0, 1.5


@dataclass(frozen=True)
class AttentionMap:
    """The attention weights at one place of a model (a key of ``PLACES``) for one sentence."""

    layers: Sequence[Tensor]  # the weights (H, T, S) of each layer
    queries: tuple[str, ...]  # T tokens; the decoder's are those that it predicts
    keys: tuple[str, ...]  # S tokens to which the queries attend


def encode(trained: Trained, text: str, side: int) -> Tensor:
    """Return the tokens (1, S) of a sentence (side 0) or translation; UserError for a bad one."""
    task, longest = trained.task, trained.positions[side]
    name = ("sentence", "target")[side]
    dictionary = (task.source_dictionary, task.target_dictionary)[side]
    (pieces,) = trained.text.segment([text], side)
    if not pieces:
        raise UserError(f"the {name} is empty: give some text")
    tokens = _tokens(pieces, dictionary)
    if tokens.size(1) > longest:
        limit = f"but the model takes at most {longest}"
        raise UserError(f"the {name} has {tokens.size(1)} subwords, {limit}: shorten it")
    return tokens


def _tokens(pieces: str, dictionary: Dictionary) -> Tensor:
    return dictionary.encode_line(pieces, add_if_not_exist=False).long().unsqueeze(0)


def attention_map(
    model: Any, task: FairseqTask, place: str, source: Tensor, target: Tensor
) -> AttentionMap:
    """Return the weights at ``place`` for a sentence (1, S) and its translation (1, T)."""
    prev_output = target.roll(1, dims=1)  # the decoder's input begins with </s>
    lengths = torch.tensor([source.size(1)])
    layers = _weights(model, place, source, lengths, prev_output)
    sentence = _symbols(source, task.source_dictionary)
    translation = _symbols(target, task.target_dictionary)
    queries, keys = translation, sentence
    if place == "encoder":
        queries = sentence
    if place == "decoder":
        keys = _symbols(prev_output, task.target_dictionary)
    return AttentionMap(layers, queries, keys)


def draw_sentence(
    trained: Trained, place: str, sentence: str, translation: str | None, output: Path
) -> AttentionMap:
    """Draw the weights at ``place`` for plain text; without a translation, the model makes one."""
    source = encode(trained, sentence, 0)  # (1, S)
    if translation is None:
        engine = FairseqEngine(trained, "float32", cpu=True)
        *pieces, _end = _symbols(source, trained.task.source_dictionary)
        [[best]] = engine.translate([pieces], trained.decoding, nbest=1)
        target = _tokens(best.text, trained.task.target_dictionary)  # (1, T)
    else:
        target = encode(trained, translation, 1)
    attention = attention_map(trained.source.model, trained.task, place, source, target)
    kind = trained.source.attention[place]
    draw(attention, f"{place} attention, {kind}: {normalise(sentence)}", output)
    return attention


@torch.no_grad()
def _weights(model: nn.Module, place: str, *inputs: Tensor) -> list[Tensor]:
    """Run the model on one sentence; return the weights (H, T, S) of each sublayer at ``place``."""
    layers: list[Tensor] = []

    def request(_: nn.Module, args: Any, kwargs: Any) -> Any:
        return args, {**kwargs, "need_head_weights": True}

    def record(_: nn.Module, args: Any, output: Any) -> None:
        layers.append(output[1].squeeze(1))  # (H, 1, T, S) -> (H, T, S)

    with ExitStack() as hooks:
        for _, sublayer_place, module in sublayers(model):
            if sublayer_place == place:
                handle = module.register_forward_pre_hook(request, with_kwargs=True)
                hooks.enter_context(handle)
                hooks.enter_context(module.register_forward_hook(record))
        model(*inputs)
    return layers


def _symbols(tokens: Tensor, dictionary: Dictionary) -> tuple[str, ...]:
    return tuple(dictionary[index] for index in tokens[0].tolist())


def draw(attention: AttentionMap, title: str, output: Path) -> None:
    """Draw a panel for each layer (a row) and head, in the format of ``output``'s suffix."""
    rows, columns = len(attention.layers), len(attention.layers[0])
    width = min(LONGEST, max(SHORTEST, TOKEN * len(attention.keys)))
    height = min(LONGEST, max(SHORTEST, TOKEN * len(attention.queries)))
    size = (columns * width + MARGIN, rows * height + MARGIN)
    figure = Figure(figsize=size, layout="constrained")
    panels = figure.subplots(rows, columns, squeeze=False, sharex=True, sharey=True)
    for layer, weights in enumerate(attention.layers):
        for head, panel in enumerate(panels[layer]):
            image = panel.imshow(weights[head], "Blues", aspect="auto", vmin=0, vmax=1)
            panel.tick_params(length=0)
        panels[layer][0].set_ylabel(f"layer {layer + 1}")
        panels[layer][0].set_yticks(**_ticks(attention.queries, height))
    for head in range(columns):
        panels[0][head].set_title(f"head {head + 1}")
        panels[-1][head].set_xticks(**_ticks(attention.keys, width), rotation=90)
    figure.colorbar(image, ax=panels, pad=0.01, fraction=0.02, label="attention weight")
    heading = f"{title}\nqueries downwards, keys across"
    figure.suptitle(heading, fontsize=FONT_SIZE, parse_math=False)
    with atomic_path(output) as temporary, warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        figure.savefig(temporary, dpi=DPI, format=output.suffix[1:], bbox_inches="tight")
    if any("missing from font" in str(warning.message) for warning in warned):
        text = "boxes stand for characters that its font lacks: list installed fonts in"
        say(f"{output}: {text} matplotlibrc (font.family: DejaVu Sans, Noto Sans CJK SC)")


def _ticks(tokens: Sequence[str], size: float) -> dict[str, Any]:
    """Return the ticks of an axis of ``size`` inches, in a font so small that no tokens overlap."""
    font = {"fontsize": min(FONT_SIZE, 72 * size / len(tokens)), "parse_math": False}
    return {"ticks": range(len(tokens)), "labels": tokens, **font}


def add_arguments(parser: ArgumentParser) -> None:
    add = parser.add_argument
    help_ = "run folder, or checkpoint (with --data) of fairseq's transformer or of ours"
    add("checkpoint", type=Path, metavar="CHECKPOINT", help=help_)
    help_ = "data folder that the model was trained on (default: the run's)"
    add("--data", type=Path, help=help_)
    add("--sentence", required=True, help="plain text in the source language")
    help_ = "its translation, as plain text (default: the model's, by beam search)"
    add("--target", help=help_)
    help_ = "attention to draw (default: %(default)s)"
    add("--place", choices=PLACES, default="cross", help=help_)
    add("--out", type=Path, required=True, help=f"picture ({', '.join(FORMATS)})")


def run(args: Namespace) -> None:
    """Draw the picture and print what it shows, with the translation if the model made it."""
    if args.out.suffix not in FORMATS:
        raise UserError(f"--out {args.out} must end in {', '.join(FORMATS)}")
    check_output(args.out)
    trained = open_trained(args.checkpoint, args.data)
    attention = draw_sentence(trained, args.place, args.sentence, args.target, args.out)
    if args.target is None and args.place != "encoder":
        subwords = " ".join(attention.queries[:-1])  # without </s>
        (translation,) = trained.text.plain([subwords])
        print(translation)
    kind = trained.source.attention[args.place]
    print(f"{args.out}: {args.place} attention ({kind})")
