"""Checkpoints that load but are not of fairseq's shape are refused in one line, and soon."""

from __future__ import annotations

import functools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import fairseq_cli  # noqa: F401 - as in its commands, which our errors end in one line
import pytest
import torch
from fairseq import checkpoint_utils

from fairseq_mhe import cli
from fairseq_mhe.common.errors import ErrorExit
from tests.checkpoints.test_bad_checkpoints import COMMANDS
from tests.fixtures.checkpoints import flat_options, save
from tests.fixtures.models import make_model

State = dict[str, Any]
SIZES = {"encoder_layers": 1, "decoder_layers": 1}
WEIGHT = "encoder.layers.0.fc1.weight"  # (32, 16)


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("whole") / "a.pt"
    return save(path, make_model(attention="mqa", **SIZES), attention="mqa", **SIZES)


def nested(depth: int) -> list[Any]:
    value: list[Any] = []
    for _ in range(depth):
        value = [value]
    return value


def within_itself() -> dict[str, Any]:
    value: dict[str, Any] = {}
    value["before"] = value
    return value


def doubled(times: int) -> list[Any]:
    """A list whose copy would have 2 ** ``times`` values."""
    value: list[Any] = ["x"]
    for _ in range(times):
        value = [value, value]
    return value


def at(*keys: Any, to: Any) -> Callable[[State], None]:
    """Changes a place of a state; ``to``: its new value, made anew where it is a function."""

    def change(state: State) -> None:
        inner: Any = state
        for key in keys[:-1]:
            inner = inner[key]
        inner[keys[-1]] = to() if callable(to) else to

    return change


#: What no command can make sense of.
FOREIGN = {
    "cfg a string": at("cfg", to="transformer"),
    "cfg a number": at("cfg", to=3),
    "args a string": at("args", to="--arch transformer"),
    "cfg.model a list": at("cfg", "model", to=lambda: [1, 2]),
    "cfg.model with numbers for names": at("cfg", "model", to={1: 2}),
    "cfg.task a number": at("cfg", "task", to=1),
    "optimizer_history of numbers": at("optimizer_history", to=[1, 2]),
    "optimizer_history of nothing": at("optimizer_history", to=[None]),
    "optimizer_history a number": at("optimizer_history", to=3),
    "num_updates NaN as text": at("optimizer_history", 0, "num_updates", to="NaN"),
    "num_updates NaN": at("optimizer_history", 0, "num_updates", to=float("nan")),
    "num_updates below 0": at("optimizer_history", 0, "num_updates", to=-1),
    "num_updates of 5,000 digits": at("optimizer_history", 0, "num_updates", to=10**5000),
    "extra_state a list": at("extra_state", to=[1]),
    "train_iterator a list": at("extra_state", "train_iterator", to=[1]),
    "numbers for the weights' names": at("model", 7, to=lambda: torch.ones(1)),
    "a weight of text": at("model", WEIGHT, to="heavy"),
    "a sparse weight": at("model", WEIGHT, to=lambda: torch.eye(4).to_sparse()),
    "a meta weight": at("model", WEIGHT, to=lambda: torch.ones(32, 16, device="meta")),
    "a complex weight": at("model", WEIGHT, to=lambda: torch.ones(32, 16, dtype=torch.cfloat)),
    "10^12 numbers": at("model", WEIGHT, to=lambda: torch.ones(1).expand(10**6, 10**6)),
    "10^12 numbers beside": at("extra_state", "x", to=lambda: torch.ones(1).expand(10**6, 10**6)),
    "a name that is a list": at("cfg", "model", "_name", to=["transformer"]),
    "itself in itself": at("fairseq_mhe", to=within_itself),
    "itself in its options": at("cfg", "model", "extra", to=within_itself),
    "deep": at("extra_state", "x", to=lambda: nested(200)),
    "2^40 values": at("cfg", "model", "x", to=lambda: doubled(40)),
}


def option(name: str, value: Any) -> Callable[[State], None]:
    return at("cfg", "model", name, to=value)


#: What no model can be built from; ``inspect`` tells what it is and ``average`` takes its mean.
UNBUILDABLE = {
    "an unknown activation": option("activation_fn", "sigmoidal"),
    "heads four": option("encoder_attention_heads", "four"),
    "heads 0": option("decoder_attention_heads", 0),
    "heads below 0": option("decoder_attention_heads", -4),
    "more heads than numbers": option("encoder_attention_heads", 10**6),
    "heads 3": option("encoder_attention_heads", 3),
    "10^7 layers": option("encoder_layers", 10**7),
    "10^7 layers of the decoder": option("decoder_layers", 10**7),
    "layers below 0": option("decoder_layers", -1),
    "layers 1.0": option("encoder_layers", 1.5),
    "another width": option("encoder_embed_dim", 32),
    "10^12 wide": option("decoder_embed_dim", 10**12),
    "10^12 wide inside": option("decoder_ffn_embed_dim", 10**12),
    "10^12 wide outside": option("decoder_output_dim", 10**12),
    "heads 10^5 wide": option("attention_head_dim", 10**5),
    "10^12 positions": option("max_source_positions", 10**12),
    "10^7 positions": option("max_target_positions", 10**7),
    "dropout of text": option("dropout", "much"),
    "layers to keep": option("encoder_layers_to_keep", "x"),
    "10^6 layers to keep": option("encoder_layers_to_keep", ",".join(["0"] * 10**6)),
    "layers to keep, a number": option("encoder_layers_to_keep", 5),
    "a number for the kind": option("attention", 5),
    "a list for the kind": option("encoder_attention", [1]),
    "markup": option("_name", "[/red]transformer[bold"),
    "codes": option("_name", "\x1b[31mtransformer\n"),
    "tables of one dimension": at(
        "model", "encoder.embed_tokens.weight", to=lambda: torch.ones(44)
    ),
    "tables without words": at(
        "model", "encoder.embed_tokens.weight", to=lambda: torch.ones(0, 16)
    ),
    "a weight of whole numbers": at("model", WEIGHT, to=lambda: torch.ones(3, dtype=torch.int64)),
}
#: What only our commands write, and read.
MARKS = {
    "a mark of another type": at("fairseq_mhe", to=[1]),
    "a mark with kinds of numbers": at("fairseq_mhe", to={"source": {"attention": {"a": 1}}}),
    "a mark with a list of versions": at("fairseq_mhe", to={"versions": [1]}),
    "sources that are a number": at("averaged_from", to=5),
}
CASES = {**FOREIGN, **MARKS, **UNBUILDABLE}
TOLERANT = ("inspect", "average")
#: Making a parser takes as long as most refusals.
build_parser = functools.cache(cli.build_parser)


def spoilt(whole: Path, path: Path, case: str) -> Path:
    state = torch.load(whole)
    CASES[case](state)
    torch.save(state, path)
    return path


@pytest.mark.parametrize("case", CASES)
def test_every_command(
    case: str,
    whole: Path,
    data: Path,
    tmp_path: Path,
    capfd: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(cli, "build_parser", build_parser)
    path = spoilt(whole, tmp_path / "bad.pt", case)
    for command, words in COMMANDS.items():
        out = tmp_path / f"out of {command}"
        places = {"IN": str(path), "OUT": str(out), "DATA": str(data)}
        status = cli.main([places.get(word, word) for word in words])
        printed = capfd.readouterr()
        assert "\x1b" not in printed.err + printed.out, command
        if case in UNBUILDABLE and command in TOLERANT:
            assert status == 0, command
            continue
        assert status == 2, command
        assert printed.err.startswith(f"fairseq-mhe {command}: error: {path}")
        assert printed.err.count("\n") == 1, command
        assert not out.exists(), command


@pytest.mark.parametrize("case", {**FOREIGN, **UNBUILDABLE})
@pytest.mark.parametrize("arch", ["transformer_mhe", "transformer"])
def test_fairseqs_loader(case: str, arch: str, whole: Path, tmp_path: Path) -> None:
    """What fairseq-generate and its siblings do with it, for our model and for fairseq's own."""
    from fairseq_mhe.models.build import make_task

    state = torch.load(whole)
    if arch == "transformer":
        state["model"] = make_model(arch=arch, **SIZES).state_dict()
        state["cfg"]["model"] = {**flat_options(**SIZES), "_name": arch}
    CASES[case](state)
    path = tmp_path / "bad.pt"
    torch.save(state, path)
    with pytest.raises(ErrorExit) as refused:
        checkpoint_utils.load_model_ensemble([str(path)], task=make_task(44))
    assert str(refused.value).isprintable()
