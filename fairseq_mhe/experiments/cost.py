"""``fairseq-mhe cost``: what a row with a kind of attention costs: parameters, multiply-adds, key/value cache."""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable
from dataclasses import astuple, dataclass
from typing import Any

import torch
from rich.console import Console
from rich.table import Table
from torch import Tensor, nn
from torch.utils.flop_counter import FlopCounterMode

from fairseq_mhe.attention import VARIANTS, Attention
from fairseq_mhe.common.errors import UserError
from fairseq_mhe.experiments.params import VOCABULARY, build_on_meta
from fairseq_mhe.models.architectures import ROWS, SMALL_ROWS
from fairseq_mhe.models.counting import (
    CacheBytes,
    attention_parameters,
    cache_bytes,
    total_parameters,
)
from fairseq_mhe.models.transformer import PLACES, kinds

#: Bytes of a number.
BYTES = {"float32": 4, "float16": 2}
#: Options that are the model's.
MODEL_OPTIONS = (*PLACES.values(), "attention_kv_heads", "collaborative_dim")


@dataclass(frozen=True)
class AttentionWork:
    """Multiply-adds of one attention sublayer.

    ``query``: for each query, its projections to heads and from heads to the output; ``key``: for
    each key position, its projections to keys and values; ``pair``: for each query and each key
    that it attends to, the scores and the weighted sums of all heads.
    """

    query: int
    key: int
    pair: int


@dataclass(frozen=True)
class Cost:
    """What a part of a model costs.

    ``source``: multiply-adds per source token, done once a sentence; ``target``: per target token,
    done for each hypothesis.
    """

    parameters: int = 0
    source: float = 0
    target: float = 0

    def __add__(self, other: Cost) -> Cost:
        """Of both parts together."""
        return Cost(
            self.parameters + other.parameters,
            self.source + other.source,
            self.target + other.target,
        )


@torch.no_grad()
def attention_work(attention: Attention) -> AttentionWork:
    """Count a sublayer's multiply-adds by running its three hooks over one position.

    Matrix products are counted. Elementwise work (head embeddings, mixing vectors, biases, masks,
    softmax) is not, nor is what is done to weights once a call, however many positions there are
    (sha sums W_O's rows).
    """
    like = next(attention.parameters())
    x, key, value = (
        like.new_zeros(1, 1, width)
        for width in (attention.embed_dim, attention.kdim, attention.vdim)
    )
    queries = attention.queries(x)  # (1, H, 1, dk); H is 1 where all heads are one
    heads = queries.new_zeros(*queries.shape[:3], attention.head_dim)
    return AttentionWork(
        query=_counted(lambda: attention.queries(x))
        + _counted(lambda: attention.merge(heads, None)),
        key=_counted(lambda: attention.keys_values(key, value)),
        pair=queries.size(1) * (queries.size(3) + attention.head_dim),
    )


def _counted(run: Callable[[], Tensor | tuple[Tensor, Tensor]]) -> int:
    with FlopCounterMode(display=False) as counter:
        run()
    return counter.get_total_flops() // 2  # a multiply-add is two operations


def costs(model: nn.Module, source: int, past: float) -> dict[str, Cost]:
    """The cost of the attention in each place (of ``PLACES``), and of all that is not attention under "rest".

    Args:
        model: an encoder-decoder Transformer of this package, its parameters possibly without
        memory ("meta").
        source: source tokens, to all of which each source and target token attends.
        past: target tokens to which a target token attends in self-attention, itself among them: (T
        + 1) / 2 on
            average while T tokens are decoded one after another; T in training, where kernels
            compute what the causal mask then hides.
    """
    parts = dict.fromkeys((*PLACES, "rest"), Cost())
    inside: set[nn.Module] = set()
    for name, module in model.named_modules():
        side = name.split(".", 1)[0]
        if isinstance(module, Attention):
            inside.update(module.modules())
            place = side if module.self_attention else "cross"
            parts[place] += _of_attention(module, place, source, past)
        elif isinstance(module, nn.Linear) and module not in inside:
            size = module.in_features * module.out_features
            parts["rest"] += Cost(source=size) if side == "encoder" else Cost(target=size)
    parts["rest"] += Cost(total_parameters(model) - attention_parameters(model))
    return parts


def _of_attention(attention: Attention, place: str, source: int, past: float) -> Cost:
    parameters = attention_parameters(attention)
    work = attention_work(attention)
    if place == "encoder":
        return Cost(parameters, source=work.query + work.key + work.pair * source)
    if place == "decoder":
        return Cost(parameters, target=work.query + work.key + work.pair * past)
    # Keys and values of the encoder's output are made once a sentence.
    return Cost(parameters, source=work.key, target=work.query + work.pair * source)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of ``fairseq-mhe cost``."""
    parser.add_argument(
        "row", metavar="ROW", help=f"size of the model: {', '.join([*ROWS, *SMALL_ROWS])}"
    )
    parser.add_argument(
        "attention", metavar="ATTENTION", help=f"kind of attention: {', '.join(VARIANTS)}"
    )
    for place in PLACES:
        parser.add_argument(
            f"--{place}-attention", metavar="KIND", help=f"another kind of {place} attention"
        )
    parser.add_argument(
        "--kv-heads",
        "--attention-kv-heads",
        dest="attention_kv_heads",
        type=int,
        metavar="G",
        help="gqa: kept heads",
    )
    parser.add_argument(
        "--collaborative-dim",
        type=int,
        metavar="D",
        help="collaborative: width of queries and keys",
    )
    for name, default, what in (
        ("source", 25, "source tokens of a sentence"),
        ("target", 25, "target tokens of its translation"),
        ("beam", 5, "hypotheses of a beam search"),
        ("vocab-size", VOCABULARY, "joined vocabulary"),
    ):
        parser.add_argument(
            f"--{name}",
            type=int,
            default=default,
            metavar="N",
            help=f"{what} (default: %(default)s)",
        )
    parser.add_argument(
        "--dtype", choices=BYTES, default="float32", help="of the cache (default: %(default)s)"
    )
    parser.add_argument("--json", action="store_true", help="print JSON, for programs")


def run(args: argparse.Namespace) -> None:
    """Print what a model costs, as a table or as JSON."""
    for name in ("source", "target", "beam"):
        if getattr(args, name) < 1:
            raise UserError(f"--{name} must be 1 or more, not {getattr(args, name)}")
    given = {name: getattr(args, name) for name in MODEL_OPTIONS if getattr(args, name) is not None}
    model = build_on_meta(args.row, args.attention, args.vocab_size, **given)
    parts = costs(model, args.source, (args.target + 1) / 2)
    cache = cache_bytes(model, BYTES[args.dtype])
    if args.json:
        print(json.dumps(_report(args, parts, cache), indent=2))
    else:
        _show(args, parts, cache)


def _totals(parts: dict[str, Cost]) -> tuple[Cost, Cost]:
    """Of all attention, and of the whole model."""
    attention = sum((parts[place] for place in PLACES), Cost())
    return attention, attention + parts["rest"]


def _report(args: argparse.Namespace, parts: dict[str, Cost], cache: CacheBytes) -> dict[str, Any]:
    """All numbers, as JSON has them."""
    attention, model = _totals(parts)
    return {
        "row": args.row,
        "attention": kinds(args),
        "source_tokens": args.source,
        "target_tokens": args.target,
        "beam": args.beam,
        "dtype": args.dtype,
        "vocabulary": args.vocab_size,
        "attention_parameters": attention.parameters,
        "total_parameters": model.parameters,
        "multiply_adds": {
            name: {"per_source_token": _plain(part.source), "per_target_token": _plain(part.target)}
            for name, part in (("attention", attention), ("model", model))
        },
        "cache_bytes": {
            "per_source_token": cache.per_source_token,
            "per_target_token": cache.per_target_token,
            "per_sentence": cache.per_sentence(args.source, args.target),
            "per_sentence_with_beam": cache.per_sentence(args.source, args.target, args.beam),
        },
    }


def _plain(number: float) -> float:
    """A whole number without a decimal point."""
    return int(number) if number == int(number) else number


def _show(args: argparse.Namespace, parts: dict[str, Cost], cache: CacheBytes) -> None:
    table = Table(title=f"{args.row} with a vocabulary of {args.vocab_size:,}")
    table.add_column("")
    for name in ("parameters", "multiply-adds\n/source token", "multiply-adds\n/target token"):
        table.add_column(name, justify="right", no_wrap=True)

    def add(name: str, part: Cost, last: bool = False) -> None:
        table.add_row(name, *(f"{number:,.0f}" for number in astuple(part)), end_section=last)

    attention, model = _totals(parts)
    for place, kind in kinds(args).items():
        add(f"{place}: {kind}", parts[place], last=place == list(PLACES)[-1])
    add("all attention", attention)
    add("the rest", parts["rest"], last=True)
    add("model", model)
    console = Console(highlight=False)
    console.print(table)
    console.print(
        f"Multiply-adds of projections, scores and weighted sums, for sentences of {args.source} source and "
        f"{args.target} target tokens: a source token's once a sentence, a target token's for each hypothesis, where "
        f"it sees {(args.target + 1) / 2:g} target tokens on average.\n"
        f"Keys and values kept in {args.dtype}: {cache.per_source_token:,} bytes a source token, "
        f"{cache.per_target_token:,} bytes a target token of each hypothesis; "
        f"{cache.per_sentence(args.source, args.target):,} bytes a sentence, "
        f"{cache.per_sentence(args.source, args.target, args.beam):,} bytes with a beam of {args.beam}."
    )
