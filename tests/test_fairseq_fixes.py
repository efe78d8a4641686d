"""Each fix for fairseq: the bug is gone with it, and there without it.

Where fairseq has mended a bug itself, the test says which fix to remove.
"""

from __future__ import annotations

import argparse
import logging
import os
import re
import subprocess
import sys
from pathlib import Path

import fairseq_cli  # noqa: F401 - as in its commands, which our errors end in one line
import numpy as np
import pytest
import torch
from fairseq import checkpoint_utils, options
from fairseq.criterions.cross_entropy import CrossEntropyCriterion
from fairseq.data import Dictionary, data_utils, indexed_dataset, token_block_dataset
from fairseq.dataclass.configs import CheckpointConfig
from fairseq.dataclass.utils import convert_namespace_to_omegaconf
from fairseq.optim.fp16_optimizer import FP16Optimizer
from fairseq.tasks.masked_lm import MaskedLMTask
from fairseq.trainer import Trainer
from omegaconf import OmegaConf

from fairseq_mhe import fairseq_fixes
from fairseq_mhe.common.checkpoint_files import read_checkpoint
from fairseq_mhe.common.errors import UserError
from fairseq_mhe.models.build import build, make_task
from tests.fixtures import checkpoints
from tests.fixtures.models import make_model
from tests.fixtures.processes import python


@pytest.mark.parametrize("fixed_shapes", [None, np.array([[2, 10], [3, 20]])])
@pytest.mark.parametrize("multiple", [1, 8])
@pytest.mark.parametrize("sentences", [3, 500, 504])
def test_no_sentence_is_lost(
    sentences: int, multiple: int, fixed_shapes: np.ndarray | None
) -> None:
    lengths = np.sort(np.arange(sentences) % 17 + 3)
    arguments = {
        "num_tokens_fn": lambda i: lengths[i],
        "num_tokens_vec": lengths,
        "max_tokens": 200,
        "required_batch_size_multiple": multiple,
        "fixed_shapes": fixed_shapes,
    }
    batches = data_utils.batch_by_size(np.arange(sentences), **arguments)
    assert np.concatenate(batches).tolist() == list(range(sentences))
    lost = data_utils.batch_by_size.__wrapped__(np.arange(sentences), **arguments)
    if multiple == 8 and sentences % 8 and fixed_shapes is None:
        assert sum(map(len, lost)) < sentences, (
            "fairseq no longer loses the last batch: remove this fix"
        )


class Payload:
    """Unpickling it would run a command."""

    def __init__(self, trace: Path) -> None:
        self.trace = trace

    def __reduce__(self):
        return os.system, (f"touch '{self.trace}'",)


def test_foreign_pickles_are_refused_in_one_line(tmp_path: Path) -> None:
    torch.save(
        {"model": {}, "cfg": None, "payload": Payload(tmp_path / "ran")}, tmp_path / "bad.pt"
    )
    with pytest.raises(SystemExit, match=r"bad.pt holds pickled objects other than") as caught:
        checkpoint_utils.load_checkpoint_to_cpu(str(tmp_path / "bad.pt"))
    assert "\n" not in str(caught.value)
    assert not (tmp_path / "ran").exists()


def test_a_whole_checkpoint_that_fairseq_cannot_load_is_not_called_damaged(tmp_path: Path) -> None:
    """Such as one from which a part was taken to make it smaller."""
    path = checkpoints.save(tmp_path / "small.pt", make_model(attention="mha"), attention="mha")
    state = torch.load(path)
    del state["optimizer_history"]
    torch.save(state, path)
    with pytest.raises(SystemExit, match=r"cannot load .*small.pt, which is whole: KeyError"):
        checkpoint_utils.load_checkpoint_to_cpu(str(path))


def test_stock_checkpoints_with_a_namespace_load(tmp_path: Path) -> None:
    from omegaconf import OmegaConf  # noqa: F401 - what fairseq makes of "cfg"

    torch.save(
        {"model": {}, "args": argparse.Namespace(arch="transformer"), "cfg": None},
        tmp_path / "stock.pt",
    )
    assert torch.load(tmp_path / "stock.pt")["args"].arch == "transformer"
    script = "import sys; from fairseq import checkpoint_utils as c; c.load_checkpoint_to_cpu"
    without = python(f"{script}(sys.argv[1])", tmp_path / "stock.pt")
    assert "UnpicklingError" in without.stderr, (
        "fairseq loads its own checkpoints again: remove _load_checkpoints_safely's safe globals"
    )


@pytest.mark.parametrize(
    ("updates", "ends", "numbered"), [(20, True, True), (21, True, False), (20, False, True)]
)
def test_a_checkpoint_at_an_epochs_end_has_its_number(
    tmp_path: Path, updates: int, ends: bool, numbered: bool
) -> None:
    """fairseq's function is called with a trainer that only writes a file, with the fix or not."""
    written = {}
    for folder, save in (
        ("with", checkpoint_utils.save_checkpoint),
        ("without", checkpoint_utils.save_checkpoint.__wrapped__),
    ):
        cfg = OmegaConf.structured(
            CheckpointConfig(save_dir=str(tmp_path / folder), save_interval_updates=10)
        )
        cfg.no_epoch_checkpoints = True
        trainer = FakeTrainer(updates)
        save(cfg, trainer, FakeIterator(ends), None)
        written[folder] = Path(trainer.first).name
    names = {
        folder: {path.name for path in (tmp_path / folder).iterdir()} - {"checkpoint_best.pt"}
        for folder in ("with", "without")
    }
    last, number = "checkpoint_last.pt", f"checkpoint_3_{updates}.pt"
    assert names["with"] == ({last, number} if numbered else {last})
    assert written["with"] == (number if numbered else last), "a kill may leave the first one only"
    if ends:
        assert names["without"] == {last}, (
            "fairseq numbers checkpoints at an epoch's end now: remove this fix"
        )


class FakeTrainer:
    """What ``save_checkpoint`` asks of a trainer."""

    task = None
    data_parallel_rank = 0
    checkpoint_suffix = ""
    should_save_checkpoint_on_current_rank = True

    def __init__(self, updates: int) -> None:
        self.updates = updates
        self.first = ""

    def get_num_updates(self) -> int:
        return self.updates

    def consolidate_optimizer(self) -> None:
        pass

    def save_checkpoint(self, filename: str, extra_state: object) -> str:
        Path(filename).write_text("weights")
        self.first = self.first or filename
        return filename


class FakeIterator:
    """What ``save_checkpoint`` asks of the epoch's iterator."""

    epoch = 3

    def __init__(self, ends: bool) -> None:
        self.ends = ends

    def end_of_epoch(self) -> bool:
        return self.ends

    def state_dict(self) -> dict[str, int]:
        return {}


def bf16_trainer(*more: str) -> Trainer:
    """Of a small model; ``more`` of fairseq-train's words."""
    words = ["data", "--arch", "transformer_mhe_tiny", "--optimizer", "adam", "--lr", "0.01"]
    words += ["--share-all-embeddings", "--bf16", "--cpu", "--required-batch-size-multiple", "1"]
    args = options.parse_args_and_arch(options.get_training_parser(), [*words, *more])
    cfg, task = convert_namespace_to_omegaconf(args), make_task(20)
    model = build(cfg.model, task, seed=3)
    return Trainer(cfg, task, model, CrossEntropyCriterion(task, sentence_avg=False))


def stepped() -> Trainer:
    """One after a step, ready to be saved."""
    trainer = bf16_trainer()
    trainer.optimizer.backward(sum(parameter.sum() for parameter in trainer.model.parameters()))
    trainer.optimizer.step()
    trainer.consolidate_optimizer()
    return trainer


def test_bf16_keeps_the_weights_in_full(tmp_path: Path) -> None:
    """A step in bf16, saved and loaded with the fix and without: the optimizer's own weights."""
    first = stepped()
    extra = {"train_iterator": {"epoch": 1}}
    first.save_checkpoint(str(tmp_path / "with.pt"), extra)
    saved = read_checkpoint(tmp_path / "with.pt")["model"]
    weight = saved["encoder.layers.0.fc1.weight"]
    assert not torch.equal(weight, weight.bfloat16().float()), "they are not rounded"
    shared = {saved[f"{side}.embed_tokens.weight"].data_ptr() for side in ("encoder", "decoder")}
    assert len(shared) == 1

    def same(other: Trainer) -> bool:
        pairs = zip(first.optimizer.fp32_params, other.optimizer.fp32_params, strict=True)
        return all(torch.equal(one, another) for one, another in pairs)

    again, without = bf16_trainer(), bf16_trainer()
    again.load_checkpoint(str(tmp_path / "with.pt"))
    assert same(again)
    Trainer.load_checkpoint.__wrapped__(without, str(tmp_path / "with.pt"))
    assert not same(without), "fairseq keeps full precision itself: remove _keep_full_precision"


@pytest.mark.parametrize(("side", "other"), [("encoder", "decoder"), ("decoder", "encoder")])
def test_one_side_alone_is_pruned(side: str, other: str) -> None:
    weights = {f"{s}.layers.{n}.fc1.weight": f"{s} {n}" for s in (side, other) for n in range(3)}
    weights |= {f"{side}.layer_norm.weight": "norm", f"{other}.embed": "e"}
    expected = {
        **{name: what for name, what in weights.items() if not name.startswith(f"{side}.layers")},
        f"{side}.layers.0.fc1.weight": f"{side} 0",
        f"{side}.layers.1.fc1.weight": f"{side} 2",
    }

    def asked() -> argparse.Namespace:
        return argparse.Namespace(arch="transformer", **{f"{side}_layers_to_keep": "0,2"})

    prune = checkpoint_utils.prune_state_dict
    assert prune(weights, asked()) == expected
    assert prune(weights, None) == prune(weights, argparse.Namespace(arch="any")) == weights
    without = prune.__wrapped__(weights, asked())
    assert f"{other}.layers.0.fc1.weight" not in without, (
        "fairseq leaves the other side alone now: remove _keep_layers_of_the_other_side"
    )


def test_a_host_program_can_catch_what_fairseqs_loaders_say(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only a command of fairseq's is ended by it."""
    monkeypatch.delitem(sys.modules, "fairseq_cli")
    for load, names in (
        (checkpoint_utils.load_checkpoint_to_cpu, str(tmp_path / "none.pt")),
        (checkpoint_utils.load_model_ensemble_and_task, [str(tmp_path / "none.pt")]),
    ):
        with pytest.raises((UserError, OSError), match=r"none\.pt"):
            load(names)


def test_bf16_keeps_the_gpu() -> None:
    words = ["no-data", "--arch", "transformer", "--bf16"]
    args = options.parse_args_and_arch(options.get_training_parser(), words)
    assert args.tpu, "fairseq's --bf16 no longer means --tpu: remove bf16_is_not_tpu"
    fairseq_fixes.bf16_is_not_tpu(args)
    assert not args.tpu
    args = argparse.Namespace(bf16=False, tpu=True)
    fairseq_fixes.bf16_is_not_tpu(args)
    assert args.tpu


def test_fp16_without_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    args = argparse.Namespace(fp16=True, cpu=True)
    fairseq_fixes.fp16_without_gpu(args)
    assert args.fp16_no_flatten_grads
    parameters = [torch.nn.Parameter(torch.ones(2, 3, dtype=torch.float16))]
    with monkeypatch.context() as without_gpu:
        without_gpu.setattr(torch.cuda, "current_device", _no_gpu)
        FP16Optimizer.build_fp32_params(args, parameters, flatten=False)
        with pytest.raises(RuntimeError, match="no GPU"):  # else: remove fp16_without_gpu
            FP16Optimizer.build_fp32_params(args, parameters, flatten=True)


def _no_gpu() -> int:
    raise RuntimeError("there is no GPU")


#: Runs each script in a fork of a process that has loaded torch and sklearn, which take longest;
#: what all but the last say of errors is left out.
_FORKS = """
import os, sys, torch, sklearn.metrics
for number, script in enumerate(sys.argv[1:], start=2):
    if not os.fork():
        if number < len(sys.argv):
            os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
        exec(script)
        sys.stdout.flush()
        os._exit(0)
    os.wait()
"""


def test_logging_is_left_as_it_was_and_nothing_is_printed() -> None:
    shown = "root = logging.getLogger(); print(root.level, len(root.handlers))"
    fresh = _python(f"import logging, fairseq_mhe; {shown}")
    assert fresh.stdout.strip() == "30 0"
    assert (fresh.stderr, fresh.returncode) == ("", 0), "importing it is silent"
    forks = _python(
        _FORKS,
        f"import logging; logging.basicConfig(level=logging.ERROR); import fairseq_mhe; {shown}",
        # As in fairseq's commands, which import it first.
        f"import logging, fairseq; {shown}; import fairseq_mhe; {shown}",
    )
    configured, without, ours = forks.stdout.splitlines()
    assert (configured, ours) == ("40 1", "30 0")
    assert without == "10 1", "fairseq leaves logging alone: simplify quiet_import"
    assert "Warning" in forks.stderr or "tensorboardX" in forks.stderr, (
        "importing fairseq is silent now: remove quiet_import's filters"
    )


def _python(script: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    words = [sys.executable, "-c", script, *arguments]
    return subprocess.run(words, capture_output=True, text=True, check=False)


def masked_lm_task(folder: Path, symbols: list[str], *words: str) -> MaskedLMTask:
    """A masked_lm task over 40 lines of all symbols in turn, in blocks of 16."""
    dictionary = Dictionary()
    for symbol in symbols:
        dictionary.add_symbol(symbol)
    dictionary.save(str(folder / "dict.txt"))
    builder = indexed_dataset.make_builder(str(folder / "train.bin"), "mmap", vocab_size=100)
    for _ in range(40):
        builder.add_item(torch.tensor([*(dictionary.index(s) for s in symbols), dictionary.eos()]))
    builder.finalize(str(folder / "train.idx"))
    parser = options.get_training_parser("masked_lm")
    line = [str(folder), "--task", "masked_lm", "--arch", "roberta_mhe_tiny", *words]
    line += ["--tokens-per-sample", "16", "--sample-break-mode", "eos", "--batch-size", "8"]
    cfg = convert_namespace_to_omegaconf(options.parse_args_and_arch(parser, line))
    return MaskedLMTask.setup_task(cfg.task)


def test_whole_words_are_masked(tmp_path: Path) -> None:
    pieces = ["▁one", "▁tw", "o", "▁th", "re", "e"]
    task = masked_lm_task(tmp_path, pieces, "--mask-whole-words", "--mask-prob", "0.4")
    task.load_dataset("train")
    dataset = task.dataset("train")
    masked = [dataset[index]["target"].ne(task.source_dictionary.pad()) for index in range(40)]
    parts = 0
    for _, one, tw, o, th, r, ee, _ in (row.tolist() for row in masked):
        assert tw == o
        assert th == r == ee
        parts += one != tw
    assert parts, "every word was masked, or none"
    del MaskedLMTask.args
    with pytest.raises(AttributeError):  # else fairseq has mended it: remove this fix
        task.load_dataset("train")
    MaskedLMTask.args = None


def test_lines_are_blocks_of_their_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    task = masked_lm_task(tmp_path, ["▁a", "▁b"])  # --sample-break-mode eos
    task.load_dataset("train")
    assert len(task.dataset("train")) == 40
    monkeypatch.setattr(token_block_dataset, "np", np)
    assert not hasattr(np, "compat")
    with pytest.raises(AttributeError, match="compat"):  # else numpy or fairseq has mended it
        task.load_dataset("train")


def test_only_modules_that_evaluate_options_have_another_eval() -> None:
    folder = Path(checkpoint_utils.__file__).parent
    names = {
        ".".join(path.relative_to(folder).with_suffix("").parts)
        for path in folder.rglob("*.py")
        if re.search(r"(?<![.\w])eval\(", path.read_text(encoding="utf-8"))
    }
    assert {name for name in names if not name.startswith("examples.")} == set(
        fairseq_fixes.EVALUATING
    )
    evaluate = vars(sys.modules["fairseq.utils"])["eval"]
    changed = {name for name, module in sys.modules.items() if vars(module).get("eval") is evaluate}
    assert changed <= {f"fairseq.{name}" for name in fairseq_fixes.EVALUATING}


def test_biases_that_do_not_exist_are_not_called_shared(caplog: pytest.LogCaptureFixture) -> None:
    log = logging.getLogger("fairseq.trainer")
    with caplog.at_level(logging.INFO, logger="fairseq.trainer"):
        for first, second in (("a.k_proj.bias", "a.v_proj.bias"), ("a.weight", "b.weight")):
            log.info(f"detected shared parameter: {first} <- {second}")
    assert [record.getMessage() for record in caplog.records] == [
        "detected shared parameter: a.weight <- b.weight"
    ]
