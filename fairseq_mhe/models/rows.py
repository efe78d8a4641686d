"""Which row of the table a model's sizes are, and the options that build the same model again."""

import argparse
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fairseq.models import ARCH_CONFIG_REGISTRY

from fairseq_mhe.common.arguments import as_words
from fairseq_mhe.models.families import TRANSLATION, Family, family_of
from fairseq_mhe.models.options import OPTIONS

#: Options that are part of a model beside its row and kind of attention, with fairseq's defaults.
_OTHERS = {
    "share_all_embeddings": False,
    "share_decoder_input_output_embed": False,
    "activation_fn": "relu",
    "layernorm_embedding": False,
    "no_scale_embedding": False,
    "encoder_learned_pos": False,
    "decoder_learned_pos": False,
    "no_cross_attention": False,
    "no_token_positional_embeddings": False,
    "no_decoder_final_norm": False,
    "merge_src_tgt_embed": False,
    "untie_weights_roberta": False,
    "max_positions": 512,
    "adaptive_softmax_cutoff": None,
    "adaptive_softmax_factor": 4,
    "adaptive_input": False,
    "adaptive_input_cutoff": None,
    "adaptive_input_factor": 4,
    "tie_adaptive_weights": False,
    "tie_adaptive_proj": False,
    **dict.fromkeys(("scale_fc", "scale_attn", "scale_heads", "scale_resids"), False),
}
#: What has a size of weights only where another option says so.
_POSITIONS = {
    "max_source_positions": "encoder_learned_pos",
    "max_target_positions": "decoder_learned_pos",
}
_WIDTHS = ("decoder_input_dim", "decoder_output_dim")  # default: as wide as the decoder


@dataclass(frozen=True)
class NearestRow:
    """A row's name, and the model's own values of the options in which it differs from it.

    Dropout, which is no part of the sizes, does not count.
    """

    name: str
    differences: dict[str, Any]


def nearest_row(options: Mapping[str, Any], on_command_line: bool = False) -> NearestRow:
    """The row of its family with the fewest differences from flat ``options`` (first of equals).

    ``on_command_line``: the differences are options of fairseq-train, which has none that turns
    layer normalisation before sublayers off.
    """
    found = []
    for name, row in _family(options).rows.items():
        sizes = {key: value for key, value in row.options().items() if key != "dropout"}
        differences = {
            key: options.get(key) for key, size in sizes.items() if options.get(key) != size
        }
        found.append(NearestRow(name, differences))
    if on_command_line:
        found = [row for row in found if False not in row.differences.values()] or found
    return min(found, key=lambda row: len(row.differences))


def _family(options: Mapping[str, Any]) -> Family:
    """The family of a model's options; bare sizes are a translation model's."""
    named = options.get("_name") or options.get("arch")
    return family_of(options) if named else TRANSLATION


def training_flags(options: Mapping[str, Any]) -> list[str]:
    """The words after ``fairseq-train DATA --user-dir ...`` that build a model of ours."""
    family = _family(options)
    row = nearest_row(options, on_command_line=True)
    usual = argparse.Namespace(**_OTHERS)
    if family is not TRANSLATION:  # whose architectures say nothing of these
        usual = argparse.Namespace()
        ARCH_CONFIG_REGISTRY[family.arch(row.name)](usual)
    others = {
        name: options.get(name)
        for name, default in _OTHERS.items()
        if options.get(name) not in (None, getattr(usual, name, default))
    }
    if "share_all_embeddings" in others:
        others.pop("share_decoder_input_output_embed", None)
    if "decoder" in family.places:  # else it is RoBERTa, whose --max-positions says it
        others |= {name: options.get(name) for name, on in _POSITIONS.items() if options.get(on)}
    if family is not TRANSLATION:
        wide = options.get("decoder_embed_dim")
        others |= {name: options[name] for name in _WIDTHS if options.get(name, wide) != wide}
    ours = {
        name: options.get(name)
        for name, (_, field) in OPTIONS.items()
        if options.get(name) != field.default
    }
    given = {"attention": options.get("attention"), **row.differences, **others, **ours}
    # A reference to an option of the task, such as ${task.tokens_per_sample}, is no value.
    known = {name: value for name, value in given.items() if str(value)[:2] != "${"}
    return as_words({"arch": family.arch(row.name), **known})


def fine_tuning_line(output: Path, options: Mapping[str, Any]) -> str:
    """How training goes on from a converted checkpoint."""
    flags = " ".join(training_flags(options))
    command = f"fairseq-train DATA-BIN --user-dir fairseq_mhe {flags}"
    return f"go on with: {command} --finetune-from-model {output} ..."
