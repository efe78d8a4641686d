"""Converted models of every kind translate like fairseq, with and without shared heads."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import ctranslate2
import pytest
import torch
from ctranslate2.converters.fairseq import set_multi_head_attention
from ctranslate2.specs.attention_spec import MultiHeadAttentionSpec
from fairseq.modules import MultiheadAttention

from fairseq_mhe import cli
from fairseq_mhe.checkpoints.checkpoint import open_source
from fairseq_mhe.convert import to_ctranslate2
from fairseq_mhe.convert.compare import open_material
from fairseq_mhe.convert.shared_heads import share_heads
from fairseq_mhe.deploy.ctranslate2_engine import exact_int8
from tests.fixtures.checkpoints import save, trained
from tests.fixtures.models import make_model

MIXED = {"encoder_attention": "gqa", "decoder_attention": "mhe_add", "cross_attention": "mhe_mul"}
#: Few layers, and a limit on the translations that do not end.
SMALL = {"encoder_layers": 1, "decoder_layers": 1, "max_target_positions": 24}
PLAIN = {"attention": "mhe_mul", **SMALL}
#: Models that differ in which key and value heads of a decoder sublayer are equal.
CASES = [
    PLAIN,
    {"attention": "gqa", "attention_kv_heads": 2, **SMALL},
    {"attention": "mha", "attention_bias": True, **SMALL},
    {"attention": "skv", **SMALL},
    {**PLAIN, "encoder_attention_heads": 1, "decoder_attention_heads": 1},
    {**MIXED, "max_target_positions": 24},
]
Convert = Callable[..., tuple[int, str, str]]


@pytest.fixture
def command(tmp_path: Path, data: Path, capsys: pytest.CaptureFixture[str]) -> Convert:
    """A function that saves and converts a model; it returns the status, output and error text."""

    def convert(model: Any, options: dict[str, Any], *words: str, out: str = "out") -> Any:
        path = save(tmp_path / "a.pt", model, **options)
        line = ["to-ctranslate2", str(path), "--data", str(data), "--out", str(tmp_path / out)]
        return cli.main([*line, *words]), *capsys.readouterr()

    return convert


@pytest.mark.parametrize("options", CASES, ids=lambda options: "-".join(map(str, options.values())))
def test_translations_equal_fairseqs(
    tmp_path: Path, data: Path, command: Convert, options: dict[str, Any]
) -> None:
    translators = []
    for name, words in (("plain", []), ("shared", ["--shared-heads"])):
        assert command(trained(**options), options, *words, out=name)[0] == 0
        translators.append(ctranslate2.Translator(str(tmp_path / name), intra_threads=1))
    source = open_source(tmp_path / "a.pt")
    material = open_material(source, data, 36)
    dictionary = material.task.source_dictionary  # the target's too
    (tokens,) = (batch["net_input"]["src_tokens"] for batch in material.compared)
    for beam, least in ((1, 36), (5, 28)):  # hardly trained models have near ties in beam search
        how = {"beam_size": beam, "max_input_length": 0, "max_decoding_length": 23}
        expected = [
            [dictionary[x] for x in best[:-1]] for best in material.search(source.model, beam)
        ]
        for translator in translators:
            results = translator.translate_batch(to_ctranslate2._words(dictionary, tokens), **how)
            pairs = zip(results, expected, strict=True)
            assert sum(result.hypotheses[0] == best for result, best in pairs) >= least


where_exact = pytest.mark.skipif(
    not exact_int8(), reason="CTranslate2 may cut 8-bit products off on this processor"
)


@pytest.mark.parametrize("quantization", [pytest.param("int8", marks=where_exact), "float16"])
def test_quantized_models_give_nearly_the_same_probabilities(
    command: Convert, quantization: str
) -> None:
    words = ["--shared-heads", "--quantization", quantization]
    _, printed, _ = command(trained(**PLAIN), PLAIN, *words)
    difference = re.search(r"log probabilities .* differ by up to (\S+) of their size", printed)
    assert 1e-6 < float(difference[1]) < 0.1


def test_shared_heads_are_stored_once_and_cached_once(tmp_path: Path, command: Convert) -> None:
    files = {}
    for name in ("", "--shared-heads", "--quantization=int8"):
        command(make_model(**PLAIN), PLAIN, *name.split(), out=f"out{name}")
        files[name] = (tmp_path / f"out{name}" / "model.bin").read_bytes()
    assert len(files["--quantization=int8"]) < len(files["--shared-heads"]) < len(files[""])
    assert files["--shared-heads"].count(b"/self_attention/multi_query") == 1  # decoder layer


@pytest.mark.parametrize("name", ["k_proj.weight", "k_proj.bias", "v_proj.weight"])
@torch.no_grad()
def test_heads_that_differ_in_one_number_are_not_shared(name: str) -> None:
    for difference in (0, 1e-3):
        module = MultiheadAttention(8, 4, encoder_decoder_attention=True)
        for parameter in (module.k_proj.weight, module.k_proj.bias, module.v_proj.weight):
            parameter.fill_(0.5)
        module.get_parameter(name)[3] += difference  # a row of the second head
        spec = MultiHeadAttentionSpec(self_attention=False)
        set_multi_head_attention(spec, module)
        share_heads(spec, 4)
        assert hasattr(spec, "num_heads_kv") == (difference == 0)


def test_a_model_with_other_probabilities_is_not_kept(
    tmp_path: Path, command: Convert, monkeypatch: pytest.MonkeyPatch
) -> None:
    options = {**PLAIN, "share_all_embeddings": False}
    other = to_ctranslate2.folded_parameters(trained(**options))
    words = other["decoder.embed_tokens.weight"]  # special symbols first: first words stay right
    other["decoder.embed_tokens.weight"] = torch.cat((words[:4], words[4:] + 0.1))
    monkeypatch.setattr(to_ctranslate2, "folded_parameters", lambda _: other)
    status, _, error = command(trained(**options), options)
    assert status == 2
    assert "probabilities are not those of" in error
    assert sorted(p.name for p in tmp_path.iterdir()) == ["a.pt"]


def test_a_model_that_ctranslate2_cannot_hold_ends_in_one_line(
    tmp_path: Path, command: Convert
) -> None:
    for unknown in ({"activation_fn": "tanh"}, {"no_cross_attention": True}):
        options = {"attention": "mha", **unknown}
        status, _, error = command(make_model(**options), options)
        assert (status, error.count("\n")) == (2, 1)
        assert [p.name for p in tmp_path.iterdir()] == ["a.pt"]


def test_a_full_disk_ends_in_one_line(
    tmp_path: Path, command: Convert, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "model.pt").symlink_to("/dev/full")
    temporary = contextlib.nullcontext(str(tmp_path))
    monkeypatch.setattr(to_ctranslate2.tempfile, "TemporaryDirectory", lambda: temporary)
    status, _, error = command(make_model(attention="mqa"), {"attention": "mqa"})
    assert status == 2
    assert f"{tmp_path}/out: No space left on device" in error
    assert {p.name for p in tmp_path.iterdir()} == {"a.pt", "model.pt"}
