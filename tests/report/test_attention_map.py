"""The picture shows the sublayers' own weights, with their tokens, for every kind."""

from __future__ import annotations

import argparse
import copy
import dataclasses
import functools
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from fairseq.data import Dictionary
from fairseq.dataclass.utils import convert_namespace_to_omegaconf
from fairseq.models import build_model
from fairseq.tasks import setup_task
from omegaconf import DictConfig, OmegaConf
from PIL import Image

from fairseq_mhe import cli
from fairseq_mhe.attention import KINDS
from fairseq_mhe.checkpoints.checkpoint import open_source
from fairseq_mhe.common.files import write_json
from fairseq_mhe.common.folder_version import FOLDER_VERSION
from fairseq_mhe.prepare.data_folder import DataFolder, open_prepared
from fairseq_mhe.prepare.subword import MODEL_NAMES, SubwordModel, learn_bpe_model, segment
from fairseq_mhe.prepare.tokenise import tokeniser
from fairseq_mhe.report import attention_map as module
from fairseq_mhe.report.attention_map import AttentionMap, attention_map, draw, encode, model_of
from tests.attention.equations import EQUATIONS
from tests.fixtures.checkpoints import save
from tests.fixtures.models import make_model

ENGLISH = [f"The lamp number {i}, in the hall was on for {i} hours." for i in range(20)]
GERMAN = [
    f"Die Lampe Nummer {i} im Flur war {i} Stunden an. Schön für 5 $ & 6 $!" for i in range(20)
]
SENTENCE, TRANSLATION = "The lamp in the hall.", "Schön für 5 $ & 6 $!"
LAYERS, HEADS = 2, 4
SIZES = {"embed_dim": 16, "ffn_embed_dim": 32, "layers": LAYERS, "attention_heads": HEADS}
#: What is drawn: each token is a label to be laid out in every panel.
SHORT, SHORT_TRANSLATION = "A lamp.", "Schön."
PLACES = ("encoder", "decoder", "cross")


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> DataFolder:
    """A data folder as ``fairseq-mhe prepare`` leaves it, as far as it is read here."""
    folder = tmp_path_factory.mktemp("data with a space")
    for name in ("subword", "bin"):
        (folder / name).mkdir()
    codes = folder / "subword" / MODEL_NAMES["bpe"]
    text = [
        tokeniser("moses", lang)(line)
        for lang, lines in (("en", ENGLISH), ("de", GERMAN))
        for line in lines
    ]
    learn_bpe_model(Counter(" ".join(text).split()), 60, codes)
    dictionary = Dictionary()
    for line in segment(text, SubwordModel("bpe", codes, "")):
        dictionary.encode_line(line, add_if_not_exist=True)
    for lang in ("en", "de"):
        dictionary.save(str(folder / "bin" / f"dict.{lang}.txt"))
    languages = {"source_lang": "en", "target_lang": "de"}
    manifest = {
        "folder_version": FOLDER_VERSION,
        "state": "complete",
        **languages,
        "subword": "bpe",
        "tokenizer": "moses",
        "options": {},
        "steps": {},
    }
    write_json(folder / "manifest.json", manifest)
    return open_prepared(folder)


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
        data="/moved since",
        share_all_embeddings=True,
        **sizes,
    )
    return convert_namespace_to_omegaconf(args)


def save_checkpoint(path: Path, data: DataFolder, **options: Any) -> Path:
    """A checkpoint of a small random model as fairseq-train writes it."""
    torch.manual_seed(3)
    cfg = copy.deepcopy(configuration())
    if options:
        cfg.model = {**cfg.model, **options}
    cfg.task.data = str(data.binary)
    cfg.task.source_lang, cfg.task.target_lang = data.languages
    model = build_model(cfg.model, setup_task(cfg.task))
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, std=0.4)
    state = {
        "args": None,
        "cfg": OmegaConf.to_container(cfg),
        "model": model.state_dict(),
        "optimizer_history": [
            {"optimizer_name": "FairseqAdam", "lr_scheduler_state": {}, "num_updates": 7}
        ],
        "extra_state": {"train_iterator": {"epoch": 1}},
    }
    torch.save(state, path)
    return path


@pytest.fixture(scope="module")
def checkpoint(data: DataFolder, tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """The checkpoint of a kind of attention, made once."""
    folder = tmp_path_factory.mktemp("checkpoints")

    def of(kind: str) -> Path:
        path = folder / f"{kind}.pt"
        return path if path.exists() else save_checkpoint(path, data, attention=kind)

    return of


@pytest.fixture(scope="module")
def opened(data: DataFolder, checkpoint: Callable[[str], Path]) -> Callable[[str], Any]:
    """The model of a kind and its task, opened once: tests must not change it."""
    return functools.cache(lambda kind: model_of(open_source(checkpoint(kind)), data))


@pytest.mark.parametrize("kind", sorted(KINDS))
@pytest.mark.parametrize("place", PLACES)
def test_weights_are_those_of_the_equation(
    kind: str, place: str, data: DataFolder, opened: Callable[[str], Any]
) -> None:
    """Each layer's weights equal the plain equation over its input; each row is a distribution."""
    model, task = opened(kind)
    source = encode(SENTENCE, 0, data.processing(), task.source_dictionary, 40)
    target = (
        None
        if place == "encoder"
        else encode(TRANSLATION, 1, data.processing(), task.target_dictionary, 40)
    )
    sublayers = [
        layer.encoder_attn if place == "cross" else layer.self_attn
        for layer in (model.encoder if place == "encoder" else model.decoder).layers
    ]
    inputs: list[tuple[Any, Any]] = []
    hooks = [
        sublayer.register_forward_pre_hook(
            lambda _, args, kwargs: inputs.append((kwargs["query"], kwargs["key"])),
            with_kwargs=True,
        )
        for sublayer in sublayers
    ]
    shown = attention_map(model, task, place, source, target)
    for hook in hooks:
        hook.remove()
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


def test_tokens_on_the_axes(data: DataFolder, checkpoint: Callable[[str], Path]) -> None:
    model, task = model_of(open_source(checkpoint("mha")), data)
    source = encode(SENTENCE, 0, data.processing(), task.source_dictionary, 40)
    target = encode(TRANSLATION, 1, data.processing(), task.target_dictionary, 40)
    maps = {
        place: attention_map(model, task, place, source, target) for place in ("decoder", "cross")
    }
    encoder = attention_map(model, task, "encoder", source, None)
    assert encoder.queries == encoder.keys == maps["cross"].keys
    joined = " ".join(encoder.keys).replace("@@ ", "")
    assert joined == "The lamp in the hall . </s>"  # tokenised as the training text was
    written = maps["cross"].queries
    assert written == maps["decoder"].queries
    assert " ".join(written).replace("@@ ", "") == "Schön für 5 $ & 6 $ ! </s>"
    assert maps["decoder"].keys == ("</s>", *written[:-1])
    unknown = encode("The \u2603", 0, data.processing(), task.source_dictionary, 40)
    assert attention_map(model, task, "encoder", unknown, None).keys[-2:] == ("<unk>", "</s>")


def test_no_hook_stays_behind(data: DataFolder, checkpoint: Callable[[str], Path]) -> None:
    model, task = model_of(open_source(checkpoint("sha")), data)
    source = encode(SENTENCE, 0, data.processing(), task.source_dictionary, 40)
    attention_map(model, task, "encoder", source, None)
    assert not any(m._forward_hooks or m._forward_pre_hooks for m in model.modules())


def run(
    capsys: pytest.CaptureFixture[str], checkpoint: Path, data: Path, out: Path, *words: str
) -> tuple[str, str]:
    status = cli.main(
        ["attention-map", str(checkpoint), "--data", str(data), "--out", str(out), *words]
    )
    printed = capsys.readouterr()
    assert (status == 0) == out.exists() == (printed.err == "")
    return printed


@pytest.mark.parametrize("place", PLACES)
def test_the_command_writes_a_picture(
    place: str,
    data: DataFolder,
    checkpoint: Callable[[str], Path],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    drawn: list[tuple[AttentionMap, str]] = []
    monkeypatch.setattr(
        module,
        "draw",
        lambda shown, title, out: (drawn.append((shown, title)), draw(shown, title, out)),
    )
    words = ["--sentence", SHORT, "--place", place]
    words += [] if place == "encoder" else ["--target", SHORT_TRANSLATION]
    out = tmp_path / "new folder" / "map.png"
    printed, _ = run(capsys, checkpoint("mhe_mul"), data.folder, out, *words)
    assert printed == f"{out}: {place} attention (mhe_mul), 2 layers, 4 heads\n"
    assert [path.name for path in out.parent.iterdir()] == ["map.png"]
    with Image.open(out) as image:
        assert image.width > HEADS * 150 > image.height / LAYERS / 3
        colours = len(image.convert("RGB").getcolors(maxcolors=1 << 24) or [])
    assert colours > 20
    ((shown, title),) = drawn
    assert title == f"{place} attention, mhe_mul: {SHORT}"
    assert len(shown.layers) == LAYERS


def test_without_a_target_the_models_own_translation_is_shown(
    data: DataFolder,
    checkpoint: Callable[[str], Path],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The map's rows are the hypothesis of fairseq's beam search, and its text is printed."""
    few = dataclasses.replace(module.DECODING, max_len_b=5)  # a random model comes to no end
    monkeypatch.setattr(module, "DECODING", few)
    out = tmp_path / "map.svg"
    printed, _ = run(capsys, checkpoint("mqa"), data.folder, out, "--sentence", "The lamp")
    model, task = model_of(open_source(checkpoint("mqa")), data)
    source = encode("The lamp", 0, data.processing(), task.source_dictionary, 40)
    best = module.translate(model, task, source)
    text = data.detokenise([task.target_dictionary.string(best[0])])[0]
    assert printed.split("\n")[0] == text
    assert best[0, -1] == task.target_dictionary.eos()
    assert out.read_text().count("<svg") == 1


def test_any_picture_format_and_long_sentences(tmp_path: Path) -> None:
    """Of 100 tokens every so manyth is written, that none overlap. Dollar signs are no formulas."""
    tokens = tuple(f"$x_{i}^{{$" for i in range(100))
    layers = (torch.rand(1, 100, 100).softmax(-1),)
    for suffix in module.FORMATS:
        draw(AttentionMap(layers, tokens, tokens), "100 $ and $^{", tmp_path / f"map{suffix}")
        assert (tmp_path / f"map{suffix}").stat().st_size > 1000


@pytest.mark.parametrize("length", [1, 10, 26, 27, 100, 1000])
def test_labels_have_room(length: int) -> None:
    panel = module.Figure().subplots()
    size = min(module.LARGEST, max(module.SMALLEST, module.TOKEN * length))
    module._label(panel, "x", [str(i) for i in range(length)], size)
    labels = [label.get_text() for label in panel.get_xticklabels()]
    assert 72 * size / len(labels) >= module.FONT_SIZE
    assert labels == [str(int(place)) for place in panel.get_xticks()]
    assert length > 26 or len(labels) == length


def test_a_failed_picture_leaves_nothing(
    data: DataFolder,
    checkpoint: Callable[[str], Path],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def fail(self: Any, path: Path, **kwargs: Any) -> None:
        path.write_bytes(b"half")
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(module.Figure, "savefig", fail)
    shown = AttentionMap((torch.ones(1, 1, 1),), ("a",), ("b",))
    with pytest.raises(module.UserError, match="No space left on device"):
        draw(shown, "", tmp_path / "map.png")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--sentence", "  "], "the sentence is empty"),
        (["--sentence", SENTENCE, "--target", "\t"], "the target is empty"),
        (
            ["--sentence", SENTENCE, "--target", "x", "--place", "encoder"],
            "--target has no effect on the encoder's",
        ),
        (["--sentence", "lamp " * 40], "subwords, but the model takes at most 40"),
        (
            ["--sentence", SENTENCE, "--target", "an " * 40],
            "subwords, but the model takes at most 40",
        ),
    ],
)
def test_bad_text_ends_in_one_line(
    words: list[str],
    message: str,
    data: DataFolder,
    checkpoint: Callable[[str], Path],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    _, err = run(capsys, checkpoint("mha"), data.folder, tmp_path / "map.png", *words)
    assert message in err
    assert err.count("\n") == 1


def test_a_place_that_the_model_does_not_have_is_one_line(
    data: DataFolder, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = save_checkpoint(tmp_path / "lone.pt", data, attention="mha", no_cross_attention=True)
    words = ["--sentence", SHORT, "--target", SHORT_TRANSLATION]
    _, err = run(capsys, path, data.folder, tmp_path / "map.png", *words)
    assert f"{path} has no cross attention: give another --place" in err
    assert err.count("\n") == 1
    run(capsys, path, data.folder, tmp_path / "map.png", *words, "--place", "decoder")


def test_bad_files_end_in_one_line(
    data: DataFolder,
    checkpoint: Callable[[str], Path],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    good, out = checkpoint("mha"), tmp_path / "map.png"
    stock = save(tmp_path / "stock.pt", make_model(arch="transformer"), _name="transformer")
    cut = tmp_path / "cut.pt"
    cut.write_bytes(good.read_bytes()[:2000])
    other = save_checkpoint(
        tmp_path / "other.pt", _other_vocabulary(tmp_path / "other", data), attention="mha"
    )
    no_codes = _copy_without(data, tmp_path / "no codes", "subword/bpe.codes")
    no_dictionary = _copy_without(data, tmp_path / "no dictionary", "bin/dict.de.txt")
    for path, folder, picture, message in (
        (tmp_path / "none.pt", data.folder, out, "none.pt does not exist"),
        (
            stock,
            data.folder,
            out,
            "is a model 'transformer', but attention maps are of transformer_mhe models only",
        ),
        (cut, data.folder, out, "is truncated or no fairseq checkpoint"),
        (other, data.folder, out, "does not belong to"),
        (good, tmp_path / "nowhere", out, "manifest.json is missing; make"),
        (good, no_codes, out, "bpe.codes is missing: prepare"),
        (good, no_dictionary, out, "dict.de.txt is missing: prepare"),
        (good, data.folder, tmp_path / "map.gif", "map.gif must end in .png, .pdf, .svg"),
        (good, data.folder, good / "map.png", "cannot write"),
    ):
        status = cli.main(
            [
                "attention-map",
                str(path),
                "--data",
                str(folder),
                "--out",
                str(picture),
                "--sentence",
                SENTENCE,
            ]
        )
        _, err = capsys.readouterr()
        assert status == 2, message
        assert message in err
        assert err.count("\n") == 1


def _copy_without(data: DataFolder, folder: Path, missing: str) -> Path:
    for path in data.folder.rglob("*"):
        if path.is_file() and str(path.relative_to(data.folder)) != missing:
            copy = folder / path.relative_to(data.folder)
            copy.parent.mkdir(parents=True, exist_ok=True)
            copy.write_bytes(path.read_bytes())
    return folder


def _other_vocabulary(folder: Path, data: DataFolder) -> DataFolder:
    """The same folder with one word more in its dictionaries."""
    _copy_without(data, folder, "")
    for lang in data.languages:
        with (folder / "bin" / f"dict.{lang}.txt").open("a") as stream:
            stream.write("".join(f"another{i} 1\n" for i in range(8)))
    return open_prepared(folder)
