"""A model converted to a smaller kind loses little, and fairseq-train continues from it;
collaborative attention is exact for D = n d, and near for less.
"""

import itertools
import re
import shlex
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

import fairseq_mhe
from fairseq_mhe import cli
from fairseq_mhe.checkpoints.checkpoint import Source, open_source
from fairseq_mhe.convert.change_kind import TARGETS
from tests.fixtures.checkpoints import fold_source, save, trained
from tests.fixtures.models import logits, make_model, same_hypotheses
from tests.fixtures.processes import fairseq

ONE_LAYER = {"encoder_layers": 1, "decoder_layers": 1}
WIDTH = 16  # n d of the small models
MIXED = {"encoder_attention": "gqa", "decoder_attention": "mhe_mul", "cross_attention": "mhe_add"}


def convert(kind: str, source: Path, output: Path, *words: str) -> None:
    assert cli.main(["convert", "--to", kind, str(source), str(output), *words]) == 0


def decompose(source: Path, output: Path, dim: int, *words: str) -> None:
    convert("collaborative", source, output, f"--collaborative-dim={dim}", *words)


@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("kind", ["mqa", "gqa"])
def test_a_fold_converted_back_to_its_kind_is_exact(
    make_source: Callable[..., Source], tmp_path: Path, kind: str, bias: bool
) -> None:
    """Red if the fit of a kind misses heads that the kind can represent."""
    source = make_source(attention=kind, attention_bias=bias, **ONE_LAYER)
    fold_source(source, tmp_path / "mha.pt")
    convert(kind, tmp_path / "mha.pt", tmp_path / "out.pt")
    converted = open_source(tmp_path / "out.pt")
    assert set(converted.attention.values()) == {kind}
    assert converted.state["fairseq_mhe"]["loss"] is None, "a loss on random words"
    torch.testing.assert_close(logits(converted.model), logits(source.model), rtol=0, atol=2e-4)


@pytest.mark.parametrize("kind", TARGETS)
def test_trained_weights_lose_little(
    tmp_path: Path, data: Path, capsys: pytest.CaptureFixture[str], kind: str
) -> None:
    options = {"attention": "mha", "attention_bias": True, **ONE_LAYER}
    path, out = save(tmp_path / "a.pt", trained(**options), **options), tmp_path / "out.pt"
    convert(kind, path, out, "--data", str(data))
    loss, before = losses(capsys.readouterr().out)
    assert loss == pytest.approx(before, abs=0.06)  # an untrained model loses 0.4
    facts = open_source(out).state["fairseq_mhe"]
    assert (facts["made_by"], facts["weighted_by"]) == ("convert", str(data))
    assert facts["loss"] == pytest.approx(loss, abs=1e-4)


def losses(printed: str) -> list[float]:
    """Return the printed losses of the new model and of its source."""
    pattern = r", loss (\S+) \(source: (\S+)\) nats/token"
    return list(map(float, re.search(pattern, printed).groups()))


@pytest.mark.parametrize(
    ("words", "output", "message"),
    [
        (["--to", "mha"], "out.pt", "mhe_mul"),
        (["--to", "mhe_add"], "out.pt", "mhe_mul"),
        (["--to", "collaborative", "--collaborative-dim", f"{10**15}"], "out.pt", "memory"),
        (["--to", "mqa", "--attention-kv-heads=2"], "out.pt", "--attention-kv-heads has no effect"),
        (["--to", "mqa", "--data", "nowhere"], "out.pt", "nowhere is no data folder"),
        (["--to", "mqa"], "folder", "it is not a regular file"),
        (["--to", "mqa"], "folder/../a.pt", "is an input"),
    ],
)
def test_bad_options_and_paths_end_in_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], words: list[str], output: str, message: str
) -> None:
    path = save(tmp_path / "a.pt", make_model(attention="mha"), attention="mha")
    before = path.read_bytes()
    (tmp_path / "folder").mkdir()
    try:
        status = cli.main(["convert", *words, str(path), f"{tmp_path}/{output}"])
    except SystemExit as error:  # argparse
        status = error.code
    assert status == 2
    assert message in capsys.readouterr().err.rstrip("\n").split("\n")[-1]
    assert {p.name for p in tmp_path.iterdir()} == {"a.pt", "folder"}
    assert path.read_bytes() == before


@pytest.mark.parametrize(
    ("learned", "options"),
    [
        (False, {"attention": "mha"}),
        (False, {"attention": "gqa", "attention_bias": True}),
        (True, {"attention": "mha", "attention_bias": True}),
        (True, {**MIXED, "attention_bias": True, **ONE_LAYER}),
        (True, {"attention": "mha", "cross_attention": "mqa", "attention_head_dim": 3}),
    ],
)
def test_collaborative_attention_of_full_width_is_exact(
    make_source: Callable[..., Source], tmp_path: Path, learned: bool, options: dict[str, Any]
) -> None:
    source = make_source(learned=learned, **options)
    decompose(source.path, tmp_path / "out.pt", WIDTH)
    converted = open_source(tmp_path / "out.pt")
    assert set(converted.attention.values()) == {"collaborative"}
    torch.testing.assert_close(logits(converted.model), logits(source.model), rtol=0, atol=1e-4)
    assert same_hypotheses(converted.model, source.model)


def test_fewer_dimensions_have_larger_errors(
    tmp_path: Path, data: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    options = {"attention": "mha", **ONE_LAYER}
    path = save(tmp_path / "a.pt", trained(**options), **options)
    differences, errors, rounds, all_losses = [], [], [], []
    for dim in (2, 6, 12):
        decompose(path, tmp_path / f"{dim}.pt", dim, "--data", str(data), "--sentences", "20")
        printed = capsys.readouterr().out
        differences.append(float(re.search(r"of a logit ([^,]+),", printed)[1]))
        rows = re.findall(r"^\| \S+attn *\| *([0-9.e-]+) \| *(\d+) \|$", printed, re.M)
        errors.append([float(error) for error, _ in rows])
        rounds += [int(count) for _, count in rows]
        all_losses.append(losses(printed))
    assert differences == sorted(differences, reverse=True)
    for few, more in itertools.pairwise(errors):
        assert all(a > b > 0 for a, b in zip(few, more, strict=True))
    assert 100 < max(rounds) <= 200
    (before,) = {source for _, source in all_losses}
    assert all(0 < loss != before for loss, _ in all_losses)
    assert open_source(tmp_path / "6.pt").options["collaborative_dim"] == 6


def test_fairseq_train_continues_from_a_converted_model(
    tmp_path: Path, data: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """fairseq-train gets the flags that the command prints, and a learning rate of almost 0."""
    options = {"attention": "mha", "attention_bias": True}
    path, out = save(tmp_path / "a.pt", trained(**options), **options), tmp_path / "my out.pt"
    decompose(path, out, 10, "--data", str(data), "--sentences", "20")
    printed = capsys.readouterr().out
    assert len(re.findall(r"^\| \S+attn *\| *[0-9.e-]+ \| *\d+ \|$", printed, re.M)) == 6
    pattern = r"train further: fairseq-train DATA-BIN --user-dir fairseq_mhe (.*) \.\.\."
    flags = shlex.split(re.search(pattern, printed)[1])
    words = "--cpu --optimizer adam --lr 1e-30 --criterion cross_entropy --max-tokens 200"
    words += " --max-update 1 --num-workers 0"
    run = tmp_path / "run"
    folders = ["--user-dir", Path(fairseq_mhe.__file__).parent, "--save-dir", run]
    done = fairseq("train", data, *words.split(), *flags, *folders)
    assert done.returncode == 0, done.stderr[-2000:]
    trained_on = open_source(run / "checkpoint_last.pt")
    # Updates of the earlier training do not count.
    assert trained_on.state["optimizer_history"][-1]["num_updates"] == 1
    torch.testing.assert_close(logits(trained_on.model), logits(open_source(out).model))
