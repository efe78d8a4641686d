"""The rows: their sizes, and the published parameter counts to the last digit."""

from __future__ import annotations

import pytest
import torch
from fairseq import options
from fairseq.dataclass.initialize import add_defaults
from fairseq.dataclass.utils import convert_namespace_to_omegaconf
from fairseq.models import BaseFairseqModel, build_model
from fairseq.modules import FairseqDropout
from fairseq.tasks.language_modeling import LanguageModelingConfig, LanguageModelingTask
from fairseq.tasks.masked_lm import MaskedLMConfig, MaskedLMTask
from omegaconf import OmegaConf

from fairseq_mhe.common.errors import ErrorExit
from fairseq_mhe.models.architectures import arch_name
from fairseq_mhe.models.build import VOCABULARY, build, build_on_meta, without_memory
from fairseq_mhe.models.counting import attention_parameters
from fairseq_mhe.models.families import make_dictionary, make_task
from fairseq_mhe.report.published import TRANSLATION

# N = encoder + decoder layers, d_m, n, d, dropout, MHA and MHE counts (Xue & Aletras 2023, machine
# translation table; counts to the last digit follow from the formulas).
TABLE = {
    "base": (12, 512, 8, 64, 0.1, 18_874_368, 6_515_712),
    "16x32": (12, 512, 16, 32, 0.1, 18_874_368, 5_630_976),
    "4x128": (12, 512, 4, 128, 0.1, 18_874_368, 8_285_184),
    "4l": (8, 512, 8, 64, 0.1, 12_582_912, 4_343_808),
    "8l": (16, 512, 8, 64, 0.1, 25_165_824, 8_687_616),
    "12h": (12, 768, 12, 64, 0.15, 42_467_328, 13_312_512),
    "big": (12, 1024, 16, 64, 0.3, 75_497_472, 22_468_608),
}


@pytest.mark.parametrize("row", TABLE)
def test_row_has_the_published_size_and_counts(row: str) -> None:
    layers, embed_dim, heads, head_dim, dropout, mha, mhe = TABLE[row]
    model = build_on_meta(row, "mha")
    assert len(model.encoder.layers) + len(model.decoder.layers) == layers
    attention = model.decoder.layers[0].encoder_attn
    found = (attention.embed_dim, attention.num_heads, attention.head_dim)
    assert found == (embed_dim, heads, head_dim)
    assert model.encoder.dropout_module.p == dropout
    assert model.decoder.layers[0].fc1.out_features == 4 * embed_dim
    assert attention_parameters(model) == mha
    for kind in ("mhe_mul", "mhe_add"):
        assert attention_parameters(build_on_meta(row, kind)) == mhe
    assert f"{mha / 1e6:.2f}" == TRANSLATION[row]["mha"].parameters
    assert f"{mhe / 1e6:.2f}" == TRANSLATION[row]["mhe_mul"].parameters


TASKS = {
    "transformer_mhe": make_task(50),
    "roberta_mhe": MaskedLMTask(MaskedLMConfig(), make_dictionary(50)),
    # More words than the cut-offs of wiki103.
    "transformer_lm_mhe": LanguageModelingTask(
        LanguageModelingConfig(), make_dictionary(90_000)
    ),
}
#: Of each family: its first row, and those with other values that fairseq's architectures set.
OURS = {
    "transformer_mhe": ("transformer_mhe", "transformer_mhe_tiny"),
    "roberta_mhe": ("roberta_mhe", "roberta_mhe_small"),
    "transformer_lm_mhe": ("transformer_lm_mhe", "transformer_lm_mhe_wiki103"),
}


@pytest.mark.parametrize(("model", "arch"), [(m, arch) for m in OURS for arch in OURS[m]])
def test_hydra_and_the_command_line_build_the_same_model(model: str, arch: str) -> None:
    task = TASKS[model]
    given = options.parse_args_and_arch(options.get_training_parser(), ["data", "--arch", arch])
    parsed = convert_namespace_to_omegaconf(given)
    written = OmegaConf.create({"model": {"_name": arch, "attention": "mhe_mul"}})
    add_defaults(written)
    with without_memory():
        models = [task.build_model(cfg.model) for cfg in (parsed, written)]
    shapes = [{name: x.shape for name, x in each.named_parameters()} for each in models]
    assert shapes[0] == shapes[1]
    drops = [{m.p for m in each.modules() if isinstance(m, FairseqDropout)} for each in models]
    assert drops[0] == drops[1]


def test_an_option_that_the_model_does_not_have_is_refused() -> None:
    wrong = OmegaConf.create({"_name": arch_name("tiny"), "atention": "mha"})
    with pytest.raises(ErrorExit, match="has no option atention"):
        TASKS["transformer_mhe"].build_model(wrong)


def test_iwslt_is_fairseqs_transformer_iwslt_de_en() -> None:
    """The same parameters by name and shape, and the same norms after sublayers."""
    ours = build_on_meta("iwslt", "mha", attention_bias=True)
    words = ["data", "--arch", "transformer_iwslt_de_en", "--share-all-embeddings"]
    args = options.parse_args_and_arch(options.get_training_parser(), words)
    with without_memory():
        theirs = build_model(args, make_task(VOCABULARY))
    shapes = [{name: x.shape for name, x in m.named_parameters()} for m in (ours, theirs)]
    assert shapes[0] == shapes[1]
    layers = ([*model.encoder.layers, *model.decoder.layers] for model in (ours, theirs))
    for mine, its in zip(*layers, strict=True):
        assert mine.self_attn.num_heads == its.self_attn.num_heads == 4
        assert mine.normalize_before is its.normalize_before is False
    assert ours.encoder.dropout_module.p == 0.3


def test_without_memory_all_shapes_are_the_same_and_later_models_have_their_positions() -> None:
    def shapes(model: BaseFairseqModel) -> dict[str, torch.Size]:
        stacks = {"encoder": model.encoder, "decoder": model.decoder}
        positions = {name: stack.embed_positions.weights for name, stack in stacks.items()}
        return {name: x.shape for name, x in {**model.state_dict(), **positions}.items()}

    options = {"arch": arch_name("tiny"), "attention": "mhe_mul", "share_all_embeddings": True}
    without = build_on_meta("tiny", "mhe_mul", 100)
    assert without.encoder.embed_positions.weights.is_meta
    real = build(options, make_task(100))
    assert shapes(without) == shapes(real)
    first = real.encoder.embed_positions.weights[2:, 0]  # row 1 is of padding
    torch.testing.assert_close(first, torch.arange(2.0, 2 + len(first)).sin())
