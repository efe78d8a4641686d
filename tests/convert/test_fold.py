"""A folded checkpoint is fairseq's own model, loads without our package, and computes the same."""

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

import fairseq_mhe
from fairseq_mhe import cli
from fairseq_mhe.attention import Attention, kind_class
from fairseq_mhe.attention.mhe import MHEAdd
from fairseq_mhe.checkpoints.average import average_checkpoints
from fairseq_mhe.checkpoints.checkpoint import Source, load_by_fairseq, open_source
from fairseq_mhe.common.errors import UserError
from tests.fixtures.checkpoints import FOLDABLE, SENTENCES, fold_source, save, stir, trained
from tests.fixtures.models import logits, make_model, same_hypotheses
from tests.fixtures.processes import LOADED

USER_DIR = str(Path(fairseq_mhe.__file__).parent)
PLACES = ("encoder_attention", "decoder_attention", "cross_attention")
ONE_LAYER = {"encoder_layers": 1, "decoder_layers": 1}
#: Models that mix kinds, so that a fold which confuses two places is noticed.
SOMEWHERE = [
    {**dict(zip(PLACES, (FOLDABLE * 2)[first : first + 3], strict=True)), **ONE_LAYER}
    for first in range(0, len(FOLDABLE), 3)
]
APART = {"share_all_embeddings": False}
PRE_NORM = {f"{side}_normalize_before": True for side in ("encoder", "decoder")}
#: Runs fairseq-generate, then prints whether this package was imported.
PLAIN_GENERATE = """
import sys
from fairseq_cli.generate import cli_main
cli_main()
print("IMPORTED", "fairseq_mhe" in sys.modules)
"""


def folded(source: Source, path: Path) -> torch.nn.Module:
    """Fold ``source`` to the file ``path``, and load it as fairseq does."""
    fold_source(source, path)
    return load_by_fairseq(path, source.task())


@pytest.mark.parametrize(
    ("learned", "options"),
    [
        *((True, {**kinds, "attention_bias": True}) for kinds in SOMEWHERE),
        (False, {"attention": "mhe_mul", "attention_head_dim": 3}),
        (False, {"attention": "mhe_mul", "encoder_embed_dim": 24, **APART}),
        (False, {"attention": "mhe_add", **PRE_NORM}),
        (False, {"attention": "gqa", "attention_kv_heads": 2, **APART}),
        (False, {"attention": "collaborative", "collaborative_dim": 3, "attention_bias": True}),
    ],
    ids=str,
)
def test_a_fold_has_the_same_logits_and_hypotheses(
    make_source: Callable[..., Source], tmp_path: Path, learned: bool, options: dict[str, Any]
) -> None:
    source = make_source(learned=learned, **options)
    stock = folded(source, tmp_path / "out.pt")
    assert type(stock).__module__.startswith("fairseq.")
    torch.testing.assert_close(logits(stock), logits(source.model), rtol=0, atol=1e-5)
    assert same_hypotheses(source.model, stock)


def test_random_words_fit_a_model_with_few_positions(
    make_source: Callable[..., Source], tmp_path: Path
) -> None:
    few = {f"max_{side}_positions": 6 for side in ("source", "target")}
    learned = {f"{side}_learned_pos": True for side in ("encoder", "decoder")}
    assert fold_source(make_source(**few, **learned), tmp_path / "out.pt").positions > 32


def test_half_precision_is_folded_in_float32(
    make_source: Callable[..., Source], tmp_path: Path
) -> None:
    source = make_source(half=torch.bfloat16, **SOMEWHERE[1])
    stock = folded(source, tmp_path / "out.pt")
    torch.testing.assert_close(logits(stock), logits(source.model), rtol=0, atol=1e-5)


def test_a_fold_holds_plain_types_only_which_ctranslate2s_own_converter_reads(
    make_source: Callable[..., Source], tmp_path: Path, data: Path
) -> None:
    """torch loads it without any class that fairseq's checkpoints need."""
    converters = pytest.importorskip("ctranslate2.converters")
    folded(make_source(attention="mhe_mul"), tmp_path / "out.pt")
    safe = torch.serialization.get_safe_globals()
    torch.serialization.clear_safe_globals()
    try:
        state = torch.load(tmp_path / "out.pt", weights_only=True)
        files = str(tmp_path / "out.pt"), str(data)
        converter = converters.FairseqConverter(*files, source_lang="en", target_lang="de")
        converter.convert(str(tmp_path / "for ctranslate2"))
    finally:
        torch.serialization.add_safe_globals(safe)
    options = state["cfg"]["model"]
    assert "attention_bias" not in options
    assert "mhe" not in str(options)
    assert state["cfg"]["common"]["user_dir"] is None


def generate(program: list[str], data: Path, path: Path, *words: str) -> list[str]:
    """Return the lines that fairseq-generate prints for the test set."""
    options = "--cpu --beam 5 --max-len-b 12 --required-batch-size-multiple 1 --gen-subset test"
    command = [*program, str(data), "--path", str(path), *options.split(), *words]
    command += ["--max-tokens", "200"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    return done.stdout.splitlines()


def test_a_process_that_never_imports_the_package_translates_the_same(
    tmp_path: Path, data: Path
) -> None:
    options = {**SOMEWHERE[0], "attention_bias": True}
    path = save(tmp_path / "model.pt", trained(**options), **options)
    assert cli.main(["fold", str(path), str(tmp_path / "folded.pt")]) == 0
    command = [sys.executable, "-m", "fairseq_cli.generate"]
    ours = generate(command, data, path, "--user-dir", USER_DIR)
    plain = generate([sys.executable, LOADED, "-c", PLAIN_GENERATE], data, tmp_path / "folded.pt")
    assert "IMPORTED False" in plain
    expected, hypotheses = (
        [line.split("\t")[::2] for line in lines if line.startswith("H-")]
        for lines in (ours, plain)
    )
    assert len(hypotheses) == SENTENCES
    assert hypotheses == expected


def test_the_command_compares_on_data(
    tmp_path: Path, data: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = save(tmp_path / "model.pt", stir(make_model(attention="mhe_mul")), attention="mhe_mul")
    words = ["fold", str(path), str(tmp_path / "out.pt"), "--data", str(data)]
    assert cli.main([*words, "--sentences", "9"]) == 0
    text = capsys.readouterr().out
    assert "folded from mhe_mul" in text
    assert f"(valid of {data})" in text
    assert "9 of 9 hypotheses are the same" in text
    assert cli.main([*words[:3], "--sentences", "9"]) == 2
    assert cli.main(["fold", str(tmp_path), str(path)]) == 2, "a run folder's own model"


@pytest.mark.parametrize("kind", ["mhe_add", "mhe_mul"])
def test_averaging_commutes_with_linear_folds_and_is_refused_for_others(
    tmp_path: Path, kind: str
) -> None:
    """Red if averaged folds of a kind whose fold is not linear are accepted."""
    options = {"attention": kind, **ONE_LAYER}
    paths, parts = ([tmp_path / f"{name}{seed}.pt" for seed in (1, 2)] for name in ("", "folded"))
    for seed, path, part in zip((1, 2), paths, parts, strict=True):
        save(path, stir(make_model(**options), seed), updates=seed, **options)
        fold_source(open_source(path), part)
    output = tmp_path / "folded-average.pt"
    if not kind_class(kind).linear_heads:
        with pytest.raises(UserError, match="mean of products"):
            average_checkpoints(parts, output)
        return
    average_checkpoints(paths, tmp_path / "average.pt")
    averaged_first = folded(open_source(tmp_path / "average.pt"), tmp_path / "average-folded.pt")
    average_checkpoints(parts, output)
    folded_first = load_by_fairseq(output, open_source(paths[0]).task())
    for name, expected in averaged_first.state_dict().items():
        torch.testing.assert_close(folded_first.state_dict()[name], expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("weight", [torch.nan, None])
def test_a_fold_that_is_not_exact_is_not_kept(
    make_source: Callable[..., Source],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    weight: float | None,
) -> None:
    """Red if a fold with NaN, or with a small error, passes the comparison."""
    source = make_source(attention="mhe_add")
    with torch.no_grad():
        if weight is not None:
            source.model.decoder.layers[0].fc1.bias[0] = weight
        else:  # this fold leaves out the head embeddings, which are small
            monkeypatch.setattr(MHEAdd, "plain_heads", Attention.plain_heads)
            for name, parameter in source.model.named_parameters():
                if name.endswith("_embedding"):
                    parameter.mul_(1e-3)
    with pytest.raises(UserError, match="is not exact"):
        fold_source(source, tmp_path / "out.pt")
    assert [p.name for p in tmp_path.iterdir()] == ["source.pt"]
