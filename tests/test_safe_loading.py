"""fairseq's checkpoints load weights-only with all that fairseq stores; no code of them runs."""

import argparse
import collections
import pickle
import shutil
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from fairseq import checkpoint_utils, file_utils
from fairseq.file_io import PathManager
from fairseq.logging import meters
from fairseq.models.transformer import TransformerModel

from fairseq_mhe.checkpoints.average import average_checkpoints
from fairseq_mhe.checkpoints.checkpoint import load_by_fairseq, open_source
from fairseq_mhe.checkpoints.inspection import inspect
from fairseq_mhe.common.checkpoint_files import read_checkpoint
from fairseq_mhe.models.tasks import make_task
from tests.fixtures.checkpoints import save
from tests.fixtures.models import BOTH_SIDES, make_model
from tests.fixtures.processes import fairseq
from tests.fixtures.refusals import refuses
from tests.fixtures.small_runs import SMALL, run_of

State = dict[str, Any]
SIZES = [f"--{name.replace('_', '-')}={value}" for name, value in BOTH_SIDES.items() if value > 1]

#: The model never predicts </s>, so that the limit of 200 words would take most of the time.
BRIEF = '{"beam":2,"max_len_b":9}'


def bleu_training(data: Path, folder: Path, updates: int) -> str:
    """Train with --eval-bleu, or resume, up to ``updates``; return what fairseq-train printed."""
    words = "--arch transformer_mhe_tiny --share-all-embeddings --optimizer adam --lr 0.001"
    words += " --user-dir fairseq_mhe --batch-size 20 --cpu --seed 1 --log-format simple"
    words += f" --eval-bleu --eval-bleu-args {BRIEF} --best-checkpoint-metric bleu"
    words += f" --maximize-best-checkpoint-metric --max-update {updates}"
    place = ["--save-dir", folder]
    done = fairseq("train", data, *words.split(), *SIZES, *place)
    assert done.returncode == 0, done.stderr
    return done.stdout + done.stderr


def test_a_training_with_eval_bleu_resumes_and_its_checkpoint_is_used(
    data: Path, tmp_path: Path
) -> None:
    """fairseq keeps BLEU's counts as NumPy arrays in the checkpoint's metrics."""
    folder = tmp_path / "save"
    bleu_training(data, folder, updates=3)
    last = folder / "checkpoint_last.pt"
    metrics = str(read_checkpoint(last)["extra_state"]["metrics"])
    assert "array(" in metrics, "fairseq stores no arrays now: this test proves nothing"
    assert "@ 3 updates)" in bleu_training(data, folder, updates=4)
    assert inspect(last)["updates"] == 4
    average_checkpoints([last], tmp_path / "mean.pt")
    for command, more in (("generate", ["--beam", "2", "--max-len-b", "9"]), ("validate", [])):
        words = ["--path", last, "--user-dir", "fairseq_mhe", "--cpu", "--batch-size", "60", *more]
        overrides = ["--task", "translation", "--model-overrides", "{'dropout': 0.2}"]
        done = fairseq(command, data, *words, *overrides)
        assert done.returncode == 0, done.stderr


PLAIN = {
    "counts": np.array([3, 2, 1, 0]),
    "another byte order": np.array([1.5, 2.5], ">f4"),
    "a matrix": np.arange(6.0).reshape(2, 3).T,
    "a score": np.float64(17.25),
    "a flag": np.bool_(True),
    "a path": Path("/a/b c"),
    "counts by word": collections.defaultdict(int, {"a": 1}),
    "a set": {1, 2},
    "options": argparse.Namespace(a=1),
}


@pytest.mark.parametrize("zipped", [True, False])
@pytest.mark.parametrize("name", PLAIN)
def test_all_that_fairseq_stores_is_read(name: str, zipped: bool, tmp_path: Path) -> None:
    value = PLAIN[name]
    state = {"cfg": {"model": {}}, "model": {}, "extra_state": value}
    torch.save(state, tmp_path / "a.pt", _use_new_zipfile_serialization=zipped)
    read = read_checkpoint(tmp_path / "a.pt")["extra_state"]
    if isinstance(value, np.ndarray):
        assert type(read) is np.ndarray
        np.testing.assert_array_equal(read, value)
    else:
        assert read == value


def test_meters_of_old_trainings_are_read(tmp_path: Path) -> None:
    """fairseq 0.8 stored its meters as objects, of a module that has another name today."""
    state = {"cfg": {"model": {}}, "model": {}, "extra_state": meters.AverageMeter()}
    torch.save(state, tmp_path / "a.pt", _use_new_zipfile_serialization=False)
    written = (tmp_path / "a.pt").read_bytes()
    named = written.replace(b"cfairseq.logging.meters\n", b"cfairseq.meters\n")
    assert named != written
    (tmp_path / "a.pt").write_bytes(named)
    assert isinstance(read_checkpoint(tmp_path / "a.pt")["extra_state"], meters.AverageMeter)


@pytest.mark.parametrize("value", [np.array([{}], object), np.array("text"), np.zeros(1, "i4,O")])
def test_arrays_of_anything_but_numbers_are_refused(value: Any, tmp_path: Path) -> None:
    torch.save({"cfg": {}, "model": {}, "extra_state": value}, tmp_path / "a.pt")
    with refuses("a.pt", "pickled objects"):
        checkpoint_utils.load_checkpoint_to_cpu(str(tmp_path / "a.pt"))
    with pytest.raises(pickle.UnpicklingError):
        torch.load(tmp_path / "a.pt")


@pytest.fixture
def checkpoint(tmp_path: Path) -> Path:
    return save(tmp_path / "model.pt", make_model(attention="mqa"), attention="mqa")


def test_suffix_and_shards_reach_fairseq(checkpoint: Path) -> None:
    """A training on several machines writes model-shard0.pt, model-shard1.pt and so on."""
    ensemble, name = checkpoint_utils.load_model_ensemble, str(checkpoint)
    for ending in ("-shard0", "_part0", "_part1"):
        shutil.copyfile(checkpoint, checkpoint.with_name(f"model{ending}.pt"))
    checkpoint.unlink()
    assert ensemble([name], suffix="-shard0", task=make_task(44))[0]
    assert ensemble([name], num_shards=2, strict=False, task=make_task(44))[0]


def test_addresses_of_other_places_are_read(checkpoint: Path, monkeypatch: Any) -> None:
    """iopath, where it is installed, finds file://, s3:// and the like for fairseq."""

    def local(address: str, **_: Any) -> str:
        return address.removeprefix("file://")

    monkeypatch.setattr(PathManager, "get_local_path", local)
    monkeypatch.setattr(PathManager, "exists", lambda address: Path(local(address)).exists())
    models, _ = checkpoint_utils.load_model_ensemble([f"file://{checkpoint}"], task=make_task(44))
    assert models


def test_a_missing_checkpoint_is_named(tmp_path: Path) -> None:
    with refuses("none.pt"):
        checkpoint_utils.load_model_ensemble([str(tmp_path / "none.pt")], task=make_task(44))


def test_a_checkpoint_can_be_overwritten_while_its_weights_are_used(checkpoint: Path) -> None:
    """A training resumes from checkpoint_last.pt and overwrites it, in place."""
    state = checkpoint_utils.load_checkpoint_to_cpu(str(checkpoint))
    weights = {name: weight.clone() for name, weight in state["model"].items()}
    checkpoint.write_bytes(bytes(checkpoint.stat().st_size))
    for name, weight in weights.items():
        assert torch.equal(state["model"][name], weight)


def packed(path: Path, more: str = "") -> Path:
    """Write a .tar.gz of a run's model and data, and a member of the name ``more``."""
    with tarfile.open(path, "w:gz") as tar:
        tar.add(run_of("mhe_mul") / "model.pt", "wmt/model.pt")
        for language in ("en", "de"):
            name = f"dict.{language}.txt"
            tar.add(SMALL / "data" / "bin" / name, f"wmt/{name}")
        if more:
            tar.addfile(tarfile.TarInfo(more))
    return path


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(file_utils, "PYTORCH_FAIRSEQ_CACHE", tmp_path / "cache")
    return tmp_path / "cache"


def test_an_archive_of_a_model_is_loaded_and_stays(tmp_path: Path, cache: Path) -> None:
    archive = packed(tmp_path / "a model.tar.gz")
    before = archive.read_bytes()
    for _ in range(2):
        model = TransformerModel.from_pretrained(str(archive), source_lang="en", target_lang="de")
        assert model.translate("the")
        assert archive.read_bytes() == before
        assert len(list(cache.iterdir())) == 1


def test_an_evil_cut_or_missing_archive_is_named(tmp_path: Path, cache: Path) -> None:
    evil = packed(tmp_path / "evil.tar.gz", "../outside")
    cut = packed(tmp_path / "cut.tar.gz")
    cut.write_bytes(cut.read_bytes()[:5000])
    for archive in (evil, cut, tmp_path / "nowhere.tar.gz"):
        with refuses(archive):
            TransformerModel.from_pretrained(str(archive))
    assert not (tmp_path / "outside").exists()
    assert not list(cache.iterdir())


CUTOFF = "adaptive_softmax_cutoff"


def plain(state: State, code: str) -> None:
    state["cfg"]["model"][CUTOFF] = code


def reference(state: State, code: str) -> None:
    """OmegaConf resolves the reference after all checks of the model's options."""
    state["cfg"]["model"][CUTOFF] = "${common.seed}"
    state["cfg"]["common"]["seed"] = code


def both(state: State, code: str) -> None:
    """fairseq reads the old form of the options (``args``) if both forms are there."""
    model = {**state["cfg"]["model"], "arch": "transformer_mhe_tiny", CUTOFF: code}
    options = {**model, "task": "translation", "criterion": "cross_entropy"}
    state["args"] = argparse.Namespace(**options)


def another_family(state: State, code: str) -> None:
    """fconv evaluates as code what other models read as numbers."""
    options: dict[str, Any] = {"arch": "fconv", "task": "translation", "dropout": 0.1}
    options |= {"criterion": "cross_entropy", "share_input_output_embed": None}
    options |= {"encoder_embed_dim": 8, "decoder_embed_dim": 8, "decoder_out_embed_dim": 8}
    options |= {"encoder_layers": code, "decoder_layers": "[(8, 3)]", "decoder_attention": "True"}
    options |= {"encoder_embed_path": None, "decoder_embed_path": None}
    options |= {"max_source_positions": 99, "max_target_positions": 99}
    state["cfg"], state["args"] = None, argparse.Namespace(**options)


@pytest.mark.parametrize("hide", [plain, reference, both, another_family])
@pytest.mark.parametrize("stock", [False, True])
def test_code_in_an_option_is_not_executed(
    tmp_path: Path, hide: Callable[[State, str], None], stock: bool
) -> None:
    ran = tmp_path / "ran"
    path = save(tmp_path / "evil.pt", make_model(attention="mha"), attention="mha")
    task = open_source(path).task()
    state = torch.load(path)
    if stock:
        state["cfg"]["model"]["_name"] = "transformer"
    hide(state, f"open({str(ran)!r}, 'w').close() or 10")
    torch.save(state, path)
    for load in (open_source, lambda path: load_by_fairseq(path, task)):
        with refuses(path):
            load(path)
        assert not ran.exists()


def test_model_overrides_are_no_code(data: Path, checkpoint: Path, tmp_path: Path) -> None:
    """fairseq-validate and fairseq-eval-lm evaluate them in their own modules."""
    words = ["--path", checkpoint, "--user-dir", "fairseq_mhe", "--cpu", "--max-tokens", "500"]
    words.append("--model-overrides")
    ran = tmp_path / "ran"
    code = f"{{'dropout': open({str(ran)!r}, 'w').close() or 0.1}}"
    shutil.copyfile(data / "dict.en.txt", tmp_path / "dict.txt")
    for command, folder in (("validate", data), ("eval-lm", tmp_path)):
        done = fairseq(command, folder, *words, code)
        assert done.returncode != 0
        assert not ran.exists()
        assert "is not a number, list or other literal" in done.stderr, done.stderr
