"""``fairseq-mhe cost``: parameters, multiply-adds and cache of a model, or of all kinds."""

import json
from argparse import ArgumentParser, Namespace
from dataclasses import asdict
from pathlib import Path
from typing import Any

import fairseq_mhe
from fairseq_mhe.attention import KINDS
from fairseq_mhe.common.arguments import positive
from fairseq_mhe.common.errors import UserError
from fairseq_mhe.common.files import Json
from fairseq_mhe.experiments.all_kinds import all_counts, table_of
from fairseq_mhe.models.architectures import LANGUAGE_NAMES, ROWS, VOCABULARY
from fairseq_mhe.models.counting import Cost, cache_bytes, costs, embedding_parameters
from fairseq_mhe.models.options import PLACES, size_options, sublayers
from fairseq_mhe.models.outline import outline
from fairseq_mhe.report import columns
from fairseq_mhe.report.table import Block, Table

_MODELS = (*ROWS, *LANGUAGE_NAMES)


def add_arguments(parser: ArgumentParser) -> None:
    add = parser.add_argument
    help_ = (
        "run folder or checkpoint, or the size of a model, or a language model's architecture "
        f"(default: attention alone, of all sizes and kinds): {', '.join(_MODELS)}"
    )
    add("model", nargs="?", metavar="MODEL", help=help_)
    help_ = f"kind of attention, if MODEL is a size: {', '.join(KINDS)}"
    add("attention", nargs="?", metavar="ATTENTION", help=help_)
    for place in PLACES:
        help_ = f"kind of {place} attention (default: ATTENTION)"
        add(f"--{place}-attention", metavar="KIND", help=help_)
    for name, (option, users) in size_options().items():
        # A short form and fairseq-train's, which may be equal: --kv-heads, --attention-kv-heads.
        names = (option.name, name)
        flags = dict.fromkeys(f"--{flag.replace('_', '-')}" for flag in names)
        help_ = f"{', '.join(users)}: {option.help}"
        add(*flags, dest=name, type=int, metavar="N", help=help_)
    for name, default, meaning in (
        ("source", 25, "source tokens of a sentence"),
        ("target", 25, "target tokens of its translation"),
        ("beam", 5, "beam size of the search"),
        ("vocab-size", VOCABULARY, "size of the joined vocabulary, if MODEL is a size"),
    ):
        help_ = f"{meaning} (default: %(default)s)"
        add(f"--{name}", type=positive, default=default, metavar="N", help=help_)
    add("--json", action="store_true", help="print JSON, for programs")


def run(args: Namespace) -> None:
    """Print the cost of a model, or the counts of all kinds, as a table or as JSON."""
    if args.model is None:
        counts = all_counts()
        print(json.dumps(counts, indent=2) if args.json else table_of(counts))
    else:
        report = _report(args)
        print(json.dumps(report, indent=2) if args.json else _cost_table(report))


def _report(args: Namespace) -> Json:
    """Return the parameters, multiply-adds and cache of a model."""
    row, kinds, vocabulary, model = _model(args)
    # On average a target token attends to half of the target, and to itself.
    parts = costs(model, args.source, (args.target + 1) / 2)
    parts["attention"] = sum((parts[place] for place in PLACES), Cost())
    parts["model"] = parts["attention"] + parts["rest"]
    cache = cache_bytes(model)
    lengths = (args.source, args.target)
    return {
        "model": args.model,
        "row": row,  # of a trained model: the one with the fewest sizes that differ
        "attention": kinds,
        "source_tokens": args.source,
        "target_tokens": args.target,
        "beam": args.beam,
        "vocabulary": vocabulary,
        "embedding_parameters": embedding_parameters(model),
        "parts": {name: asdict(part) for name, part in parts.items()},
        "cache_bytes": {
            "per_source_token": cache.per_source_token,
            "per_target_token": cache.per_target_token,
            "per_sentence": cache.per_sentence(*lengths),
            "per_sentence_with_beam": cache.per_sentence(*lengths, args.beam),
        },
    }


def _model(args: Namespace) -> tuple[str, dict[str, str], int, Any]:
    """Return the row, the kind of each place, the size of the vocabulary, and the model."""
    options = {}
    for name in ("attention", *PLACES.values(), *size_options()):
        if getattr(args, name) is not None:
            options[name] = getattr(args, name)
    if args.model not in _MODELS:
        return _trained(Path(args.model), options)
    if args.attention is None:
        raise UserError(f"give a kind of attention: cost {args.model} KIND")
    if args.model in ROWS:
        model = outline(ROWS[args.model], args.vocab_size, **options)
    else:
        model = _language_model(args.model, args.vocab_size, **options)
    kinds = {place: attention.kind for _, place, attention in sublayers(model)}
    return args.model, kinds, args.vocab_size, model


def _trained(path: Path, options: dict[str, Any]) -> tuple[str, dict[str, str], int, Any]:
    """Return `_model` of a run folder or checkpoint."""
    if not path.exists():
        known = ", ".join(_MODELS)
        raise UserError(f"{path} is no run folder and no size: give one of {known}")
    if options:
        raise UserError(
            f"{path} has its own attention: give only --source, --target, --beam"
        )
    fairseq_mhe.fix_fairseq()
    from fairseq_mhe.checkpoints.checkpoint import open_source

    source = open_source(path)
    return source.row, source.attention, source.vocab_sizes[-1], source.model


def _language_model(arch: str, vocabulary: int, **options: Any) -> Any:
    fairseq_mhe.fix_fairseq()
    from fairseq_mhe.models.build import build_on_meta

    return build_on_meta(arch, options.pop("attention"), vocabulary, **options)


def _cost_table(report: Json) -> str:
    names = {place: f"{place}: {kind}" for place, kind in report["attention"].items()}
    names |= {"attention": "all attention", "rest": "the rest", "model": "model"}
    rows = []
    for part, name in names.items():
        rows.append({"part": name, **report["parts"][part]})
    embedding = {"parameters": report["embedding_parameters"]}
    rows.insert(-1, {"part": "of the rest, embedding", **embedding})
    target = report["target_tokens"]
    cache = report["cache_bytes"]
    notes = {  # part of the model -> what its counts mean
        "model": "Multiply-adds: projections, attention scores and weighted sums.",
        "encoder": f"{report['source_tokens']} source tokens, which count once a sentence.",
        "decoder": f"{target} target tokens, which count once a hypothesis; a target token attends "
        f"to {(target + 1) / 2:g} target tokens on average. Key/value cache in float32: "
        f"{cache['per_target_token']:,} bytes a target token of each hypothesis; "
        f"{cache['per_sentence']:,} bytes a sentence, {cache['per_sentence_with_beam']:,} bytes "
        f"with a beam of {report['beam']}.",
        "cross": f"Cross-attention caches {cache['per_source_token']:,} bytes a source token.",
    }
    title = f"{report['model']} with a vocabulary of {report['vocabulary']:,}"
    of_parts = [note for part, note in notes.items() if part in names]
    table = Table(title, [Block(columns.COST, rows)], of_parts)
    return table.markdown().rstrip()
