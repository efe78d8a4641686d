"""The picture shows the sublayers' own weights, with their tokens, for every kind."""

from __future__ import annotations

import argparse
import dataclasses
import functools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from fairseq.dataclass.utils import convert_namespace_to_omegaconf
from fairseq.models import build_model
from fairseq.tasks import setup_task
from omegaconf import DictConfig, OmegaConf
from PIL import Image
from torch import Tensor

from fairseq_mhe import cli
from fairseq_mhe.attention import KINDS
from fairseq_mhe.checkpoints.checkpoint import open_source
from fairseq_mhe.convert.material import task_of
from fairseq_mhe.prepare.data_folder import open_prepared
from fairseq_mhe.report import attention_map as module
from fairseq_mhe.report.attention_map import AttentionMap, attention_map, draw, encode
from tests.attention.equations import EQUATIONS
from tests.fixtures.small_runs import MADE

SENTENCE, TRANSLATION = "The lamp in the hall.", "Die Lampe im Flur."
LAYERS, HEADS = 2, 4
SIZES = {"embed_dim": 16, "ffn_embed_dim": 32, "layers": LAYERS, "attention_heads": HEADS}
PLACES = ("encoder", "decoder", "cross")
DATA = open_prepared(MADE / "data")


@functools.cache
def configuration() -> DictConfig:
    """Of a small model of the default kind: making one takes longer than drawing a map."""
    sizes = {
        f"{side}_{name}": value for side in ("encoder", "decoder") for name, value in SIZES.items()
    }
    args = argparse.Namespace(
        max_source_positions=40,
        max_target_positions=40,
        arch="transformer_mhe_tiny",
        task="translation",
        data=str(DATA.binary),
        source_lang="en",
        target_lang="de",
        share_all_embeddings=True,
        **sizes,
    )
    return convert_namespace_to_omegaconf(args)


def save_checkpoint(path: Path, **options: Any) -> Path:
    """A checkpoint of a small random model as fairseq-train writes it."""
    torch.manual_seed(3)
    cfg = configuration()
    of_model = argparse.Namespace(**{**vars(cfg.model), **options})
    model = build_model(of_model, setup_task(cfg.task))
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, std=0.4)
    whole = {**OmegaConf.to_container(cfg), "model": of_model}
    state = {"args": None, "cfg": whole, "model": model.state_dict()}
    state["optimizer_history"] = [
        {"optimizer_name": "FairseqAdam", "lr_scheduler_state": {}, "num_updates": 7}
    ]
    torch.save({**state, "extra_state": {"train_iterator": {"epoch": 1}}}, path)
    return path


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """The checkpoint of a kind of attention, made once."""
    folder = tmp_path_factory.mktemp("checkpoints")

    def of(kind: str) -> Path:
        path = folder / f"{kind}.pt"
        return path if path.exists() else save_checkpoint(path, attention=kind)

    return of


@pytest.fixture(scope="module")
def opened(checkpoint: Callable[[str], Path]) -> Callable[[str], Any]:
    """The model of a kind and its task, opened once: tests must not change it."""

    def of(kind: str) -> Any:
        source = open_source(checkpoint(kind))
        return source.model, task_of(DATA, source)

    return functools.cache(of)


def encoded(task: Any) -> list[Tensor]:
    """The sentence (1, S) and its translation (1, T)."""
    texts = ((SENTENCE, task.source_dictionary), (TRANSLATION, task.target_dictionary))
    return [
        encode(text, side, DATA.processing(), dictionary, 40)
        for side, (text, dictionary) in enumerate(texts)
    ]


@pytest.mark.parametrize("kind", sorted(KINDS))
@pytest.mark.parametrize("place", PLACES)
def test_weights_are_those_of_the_equation(
    kind: str, place: str, opened: Callable[[str], Any]
) -> None:
    """Each layer's weights equal the plain equation over its input; each row is a distribution."""
    model, task = opened(kind)
    source, target = encoded(task)
    side = model.encoder if place == "encoder" else model.decoder
    sublayers = [
        layer.encoder_attn if place == "cross" else layer.self_attn for layer in side.layers
    ]
    inputs: list[tuple[Any, Any]] = []
    hooks = [
        sublayer.register_forward_pre_hook(
            lambda _, args, kwargs: inputs.append((kwargs["query"], kwargs["key"])),
            with_kwargs=True,
        )
        for sublayer in sublayers
    ]
    shown = attention_map(model, task, place, source, None if place == "encoder" else target)
    for hook in hooks:
        hook.remove()
    assert not any(m._forward_hooks or m._forward_pre_hooks for m in model.modules())
    queries, keys = len(shown.queries), len(shown.keys)
    assert len(shown.layers) == LAYERS
    hidden = torch.zeros(1, queries, keys, dtype=torch.bool)
    if place == "decoder":
        hidden = torch.ones(1, queries, keys, dtype=torch.bool).triu(1)
    for weights, sublayer, (query, key) in zip(shown.layers, sublayers, inputs, strict=True):
        assert weights.shape == (HEADS, queries, keys)
        torch.testing.assert_close(weights.sum(-1), torch.ones(HEADS, queries), rtol=0, atol=1e-6)
        with torch.no_grad():
            _, expected = EQUATIONS[kind](sublayer, query, key, hidden)
        torch.testing.assert_close(weights, expected.squeeze(1), rtol=0, atol=1e-5)
    assert not torch.allclose(shown.layers[0], shown.layers[1])


def test_tokens_on_the_axes(opened: Callable[[str], Any]) -> None:
    model, task = opened("mha")
    source, target = encoded(task)
    decoder, cross = (attention_map(model, task, p, source, target) for p in ("decoder", "cross"))
    encoder = attention_map(model, task, "encoder", source, None)
    assert encoder.queries == encoder.keys == cross.keys
    joined = " ".join(encoder.keys).replace("@@ ", "")
    assert joined == "The lamp in the hall . </s>"  # tokenised as the training text was
    assert cross.queries == decoder.queries
    assert " ".join(cross.queries).replace("@@ ", "") == "Die Lampe im Flur . </s>"
    assert decoder.keys == ("</s>", *cross.queries[:-1])
    unknown = encode("The \u2603", 0, DATA.processing(), task.source_dictionary, 40)
    assert attention_map(model, task, "encoder", unknown, None).keys[-2:] == ("<unk>", "</s>")


def run(
    capsys: pytest.CaptureFixture[str], checkpoint: Path, out: Path, *words: str
) -> tuple[str, str]:
    line = ["attention-map", str(checkpoint), "--data", str(DATA.folder), "--out", str(out)]
    status = cli.main([*line, *words])
    printed = capsys.readouterr()
    assert (status == 0) == out.exists() == (printed.err == "")
    assert printed.err.count("\n") <= 1
    return printed


@pytest.mark.parametrize("place", PLACES)
def test_the_command_writes_a_picture(
    place: str,
    checkpoint: Callable[[str], Path],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    words = ["--sentence", "A lamp.", "--place", place]
    words += [] if place == "encoder" else ["--target", "Die Lampe."]
    out = tmp_path / "new folder" / "map.png"
    printed, _ = run(capsys, checkpoint("mhe_mul"), out, *words)
    assert printed == f"{out}: {place} attention (mhe_mul), 2 layers, 4 heads\n"
    assert [path.name for path in out.parent.iterdir()] == ["map.png"]
    with Image.open(out) as image:
        assert image.width > HEADS * 150 > image.height / LAYERS / 3
        assert len(image.convert("RGB").getcolors(maxcolors=1 << 24) or []) > 20


def test_without_a_target_the_models_own_translation_is_shown(
    checkpoint: Callable[[str], Path],
    opened: Callable[[str], Any],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The map's rows are the hypothesis of fairseq's beam search, and its text is printed."""
    few = dataclasses.replace(module.DECODING, max_len_b=5)  # a random model comes to no end
    monkeypatch.setattr(module, "DECODING", few)
    out = tmp_path / "map.svg"
    printed, _ = run(capsys, checkpoint("mqa"), out, "--sentence", SENTENCE)
    model, task = opened("mqa")
    best = module.translate(model, task, encoded(task)[0])
    text = DATA.detokenise([task.target_dictionary.string(best[0])])[0]
    assert printed.split("\n")[0] == text
    assert best[0, -1] == task.target_dictionary.eos()
    assert out.read_text().count("<svg") == 1
    assert "attention weight" in out.read_text(), "the colour bar's name"


def test_any_picture_format_and_long_sentences(tmp_path: Path) -> None:
    """Of 100 tokens some are written, so that none overlap. Dollar signs are no formulas."""
    tokens = tuple(f"$x_{i}^{{$" for i in range(100))
    layers = (torch.rand(1, 100, 100).softmax(-1),)
    for suffix in module.FORMATS:
        draw(AttentionMap(layers, tokens, tokens), "100 $ and $^{", tmp_path / f"map{suffix}")
        assert (tmp_path / f"map{suffix}").stat().st_size > 1000


@pytest.mark.parametrize("length", [1, 26, 27, 1000])
def test_labels_have_room(length: int) -> None:
    size = min(module.LARGEST, max(module.SMALLEST, module.TOKEN * length))
    places, tokens = module.labels([str(i) for i in range(length)], size)
    assert 72 * size / len(tokens) >= module.FONT_SIZE
    assert list(tokens) == [str(place) for place in places]
    assert length > 26 or len(tokens) == length


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--sentence", "  "], "the sentence is empty"),
        (["--sentence", SENTENCE, "--target", "\t"], "the target is empty"),
        (
            ["--sentence", SENTENCE, "--target", "x", "--place", "encoder"],
            "--target has no effect on encoder attention",
        ),
        (["--sentence", "lamp " * 40], "subwords, but the model takes at most 40"),
        (["--sentence", SENTENCE, "--data", "nowhere"], "manifest.json is missing; make"),
        (["--sentence", SENTENCE, "--out", "map.gif"], "map.gif must end in .png, .pdf, .svg"),
    ],
)
def test_bad_input_ends_in_one_line(
    words: list[str],
    message: str,
    checkpoint: Callable[[str], Path],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    _, err = run(capsys, checkpoint("mha"), tmp_path / "map.png", *words)
    assert message in err


def test_a_place_that_the_model_does_not_have_is_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = save_checkpoint(tmp_path / "lone.pt", attention="mha", no_cross_attention=True)
    words = ["--sentence", "A lamp.", "--target", "Die Lampe."]
    _, err = run(capsys, path, tmp_path / "map.png", *words)
    assert f"{path} has no cross attention: give another --place" in err
    run(capsys, path, tmp_path / "map.png", *words, "--place", "decoder")


def test_a_stock_model_has_a_map(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = save_checkpoint(tmp_path / "stock.pt", _name="transformer", arch="transformer")
    out = tmp_path / "map.png"
    printed, err = run(capsys, path, out, "--sentence", "A lamp.", "--target", "Die Lampe.")
    assert not err
    assert printed == f"{out}: cross attention (mha), 2 layers, 4 heads\n"
