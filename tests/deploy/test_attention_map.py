"""The picture shows the sublayers' attention weights and their tokens, for every kind."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from PIL import Image

from fairseq_mhe import cli
from fairseq_mhe.attention import KINDS
from fairseq_mhe.deploy.attention_map import attention_map, encode
from fairseq_mhe.deploy.trained import open_trained
from fairseq_mhe.deploy.translator import Translator
from tests.fixtures.checkpoints import stir
from tests.fixtures.models import make_dictionary, make_model
from tests.fixtures.small_runs import SMALL, run_of

Capture = pytest.CaptureFixture[str]

SENTENCE, TRANSLATION = "The lamp in the hall.", "Die Lampe im Flur."
PLACES = ("encoder", "decoder", "cross")
DATA = SMALL / "data"
RUN = run_of("mhe_mul")


@pytest.mark.parametrize("kind", sorted(KINDS))
@pytest.mark.parametrize("place", PLACES)
def test_weights_equal_the_plain_equation(kind: str, place: str) -> None:
    """Red if weights are from another layer or place, or a row is no distribution over the keys."""
    model: Any = stir(make_model(attention=kind))
    words = make_dictionary()
    task: Any = SimpleNamespace(source_dictionary=words, target_dictionary=words)
    source, target = torch.tensor([[5, 9, 7, 8, 2]]), torch.tensor([[6, 4, 9, 2]])
    side = model.encoder if place == "encoder" else model.decoder
    name = "encoder_attn" if place == "cross" else "self_attn"
    sublayers, inputs = [getattr(layer, name) for layer in side.layers], []

    def record(_: Any, args: Any, kwargs: Any) -> None:
        inputs.append((kwargs["query"], kwargs["key"]))

    hooks = [s.register_forward_pre_hook(record, with_kwargs=True) for s in sublayers]
    attention = attention_map(model, task, place, source, target)
    for hook in hooks:
        hook.remove()
    assert not any(m._forward_hooks or m._forward_pre_hooks for m in model.modules())
    queries, keys = len(attention.queries), len(attention.keys)
    hidden = torch.full((1, queries, keys), place == "decoder").triu(1)
    for weights, sublayer, (query, key) in zip(attention.layers, sublayers, inputs, strict=True):
        heads = sublayer.num_heads
        assert weights.shape == (heads, queries, keys)
        torch.testing.assert_close(weights.sum(-1), torch.ones(heads, queries), rtol=0, atol=1e-6)
        with torch.no_grad():
            _, expected = sublayer.equation(query, key, hidden)
        torch.testing.assert_close(weights, expected.squeeze(1), rtol=0, atol=1e-5)
    assert not torch.allclose(attention.layers[0], attention.layers[1])


def test_axes_show_the_tokens_of_each_place() -> None:
    trained = open_trained(RUN, DATA)
    source, target = encode(trained, SENTENCE, 0), encode(trained, TRANSLATION, 1)
    model = trained.source.model, trained.task
    encoder, decoder, cross = (attention_map(*model, place, source, target) for place in PLACES)
    assert encoder.queries == encoder.keys == cross.keys
    joined = " ".join(encoder.keys).replace("@@ ", "")
    assert joined == "The lamp in the hall . </s>"  # tokenised as the training text was
    assert cross.queries == decoder.queries
    assert " ".join(cross.queries).replace("@@ ", "") == "Die Lampe im Flur . </s>"
    assert decoder.keys == ("</s>", *cross.queries[:-1])
    unknown = encode(trained, "The \u2603", 0)
    assert attention_map(*model, "cross", unknown, target).keys[-2:] == ("<unk>", "</s>")


def run(capsys: Capture, out: Path, *words: str) -> tuple[str, str]:
    line = ["attention-map", str(RUN), "--data", str(DATA), "--out", str(out)]
    assert cli.main([*line, *words]) == 0
    return capsys.readouterr()


def test_the_command_writes_a_picture_of_the_given_translation(
    tmp_path: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fairseq_mhe.deploy.attention_map.FairseqEngine", None)  # --target is given
    out = tmp_path / "new folder" / "map.png"
    words = ["--sentence", "\u4f60\u597d lamp.", "--target", "Die Lampe.", "--place", "encoder"]
    printed, said = run(capsys, out, *words)
    assert said.startswith(f"{out}: boxes stand for characters that its font lacks: list inst")
    assert printed == f"{out}: encoder attention (mhe_mul)\n"
    with Image.open(out) as image:
        assert image.width > 2 * 150 > image.height / 3
        assert len(image.convert("RGB").getcolors(maxcolors=1 << 24) or []) > 20


def test_without_a_target_the_model_translates(tmp_path: Path, capsys: Capture) -> None:
    """Red if the map's translation is another than the `Translator`'s."""
    out = tmp_path / "map.svg"
    printed, said = run(capsys, out, "--sentence", SENTENCE)
    translator = Translator.load(RUN, data=DATA, engine="fairseq", cpu=True)
    assert (printed.split("\n")[0], said) == (translator.translate([SENTENCE])[0], "")
    assert out.read_text().count("<svg") == 1
    assert "attention weight" in out.read_text(), "the colour bar's name"
