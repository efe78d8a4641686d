"""Rows, architectures and options: published sizes, one model from every input, clear errors."""

from typing import Any

import pytest
import torch
from fairseq import options
from fairseq.dataclass.initialize import add_defaults
from fairseq.dataclass.utils import convert_namespace_to_omegaconf
from fairseq.models import build_model
from fairseq.modules import FairseqDropout
from omegaconf import OmegaConf
from torch import nn

from fairseq_mhe.common.arguments import as_words
from fairseq_mhe.models.architectures import VOCABULARY
from fairseq_mhe.models.build import build_on_meta
from fairseq_mhe.models.families import FAMILIES, TRANSLATION, training_options
from fairseq_mhe.models.tasks import make_task
from tests.fixtures.refusals import refuses

# The paper's sizes (Xue & Aletras 2023, machine translation table): N = encoder + decoder layers,
# d_m, n, d, dropout. tests/experiments/test_cost.py compares its counts of parameters.
SIZES = {
    "base": (12, 512, 8, 64, 0.1),
    "16x32": (12, 512, 16, 32, 0.1),
    "4x128": (12, 512, 4, 128, 0.1),
    "4l": (8, 512, 8, 64, 0.1),
    "8l": (16, 512, 8, 64, 0.1),
    "12h": (12, 768, 12, 64, 0.15),
    "big": (12, 1024, 16, 64, 0.3),
}
#: Reading this data would fail with another message, so options are checked before.
NO_DATA = "/no such folder/bin"


def parse(*words: str) -> Any:
    """Parse options as fairseq-train does before it reads data."""
    return options.parse_args_and_arch(options.get_training_parser(), [NO_DATA, *words])


def shapes(model: nn.Module) -> dict[str, torch.Size]:
    return {name: x.shape for name, x in model.named_parameters()}


@pytest.mark.parametrize("row", SIZES)
def test_row_has_the_published_size(row: str) -> None:
    model = build_on_meta(row, "mha")
    layer = model.decoder.layers[0]
    attention = layer.encoder_attn
    sizes = (
        len(model.encoder.layers) + len(model.decoder.layers),
        *(attention.embed_dim, attention.num_heads, attention.head_dim),
        model.encoder.dropout_module.p,
    )
    assert sizes == SIZES[row]
    assert layer.fc1.out_features == 4 * attention.embed_dim


#: For each family its default, and a row with other values from fairseq's architectures.
ARCHS = [
    ("transformer_mhe", "transformer_mhe_tiny"),
    ("roberta_mhe", "roberta_mhe_small"),
    ("transformer_lm_mhe", "transformer_lm_mhe_wiki103"),
]


@pytest.mark.parametrize("number", range(3))
@pytest.mark.parametrize("size", range(2))
def test_hydra_gives_equal_models(number: int, size: int) -> None:
    family, arch = FAMILIES[number], ARCHS[number][size]
    args = parse("--arch", arch, "--no-progress-bar", "--unk", "5")  # the first value and the last
    parsed = convert_namespace_to_omegaconf(args)
    written = OmegaConf.create({"model": {"_name": arch, "attention": "mhe_mul"}})
    add_defaults(written)
    task = family.task(90_000)  # more words than the cut-offs of wiki103
    with torch.device("meta"):
        models = [task.build_model(cfg.model) for cfg in (parsed, written)]
    assert shapes(models[0]) == shapes(models[1])
    dropouts = [{m.p for m in one.modules() if isinstance(m, FairseqDropout)} for one in models]
    assert dropouts[0] == dropouts[1]


def test_an_option_that_the_model_does_not_have_is_refused() -> None:
    wrong = OmegaConf.create({"_name": TRANSLATION.arch("tiny"), "atention": "mha"})
    with refuses("atention"):
        make_task(50).build_model(wrong)


def test_iwslt_is_fairseqs_transformer_iwslt_de_en() -> None:
    """The same parameters by name and shape, and the same norms after sublayers."""
    ours = build_on_meta("iwslt", "mha", attention_bias=True)
    args = parse("--arch", "transformer_iwslt_de_en", "--share-all-embeddings")
    with torch.device("meta"):
        theirs = build_model(args, make_task(VOCABULARY))
    assert shapes(ours) == shapes(theirs)
    for model in (ours, theirs):
        for layer in (*model.encoder.layers, *model.decoder.layers):
            assert (layer.self_attn.num_heads, layer.normalize_before) == (4, False)
    assert ours.encoder.dropout_module.p == 0.3


BASE = ("transformer_mhe_base", "translation")
CAUSAL = ("transformer_lm_mhe_tiny", "language_modeling")
POST_NORM = dict.fromkeys(("encoder_normalize_before", "decoder_normalize_before"), False)
MUL = {"attention": "mhe_mul", "head_embedding_offset": 0.0, "attention_bias": True}


@pytest.mark.parametrize(
    ("arch", "task", "different"),
    [
        (*BASE, {"decoder_output_dim": 16}),
        ("transformer_mhe_tiny", "translation", POST_NORM),  # of a row that is pre-norm
        (*BASE, {"encoder_layers": 4, "attention": "collaborative", "collaborative_dim": 64}),
        (*BASE, {**MUL, "adaptive_softmax_cutoff": [10, 20], "max_source_positions": 40}),
        (*CAUSAL, {"decoder_input_dim": 32, "scale_heads": True}),
        (*CAUSAL, {"adaptive_input": True, "adaptive_input_cutoff": "5,9"}),
        ("roberta_mhe_tiny", "masked_lm", {"untie_weights_roberta": True}),
    ],
)
def test_training_options_build_the_same_model(arch: str, task: str, different: dict) -> None:
    line = ("--task", task, "--criterion", "cross_entropy")
    expected = {**vars(parse("--arch", arch, "--attention", "mqa", *line)), **different}
    built = vars(parse(*as_words(training_options(expected)), *line))
    expected |= {"arch": built["arch"], "dropout": built["dropout"]}  # which are no sizes
    assert {name for name in expected if built[name] != expected[name]} == set()


#: Options that do not fit, and what the one line must name.
BAD = [
    ("--attention gqa --attention-kv-heads 3", "kv_heads 3"),
    ("--attention mha --decoder-attention skv --collaborative-dim 8", "--collaborative-dim"),
    ("--cross-attention el --encoder-embed-dim 256", "head_dim 64"),
    ("--attention mhe", "mhe_mul"),
    ("--attention skv --encoder-attention-heads 7", "embed_dim 512"),
    ("--arch transformer_lm_mhe_tiny --decoder-attention-heads 3", "128"),
]


@pytest.mark.parametrize(("words", "named"), BAD)
def test_bad_options_stop_the_parser_in_one_line(words: str, named: str) -> None:
    with refuses(named):
        parse("--arch", "transformer_mhe_base", *words.split())
