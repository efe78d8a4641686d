"""Each fix for fairseq: the bug is gone with it, and there without it.

Where fairseq has mended a bug itself, the test says which fix to remove.
"""

import argparse
import logging
import re
import sys
from pathlib import Path
from unittest.mock import MagicMock, Mock

import numpy as np
import pytest
import torch
from fairseq import checkpoint_utils, data, options
from fairseq.criterions.cross_entropy import CrossEntropyCriterion
from fairseq.data import Dictionary, TokenBlockDataset, data_utils
from fairseq.dataclass.configs import CheckpointConfig
from fairseq.dataclass.utils import convert_namespace_to_omegaconf
from fairseq.models import ARCH_CONFIG_REGISTRY, ARCH_MODEL_REGISTRY
from fairseq.optim.fp16_optimizer import FP16Optimizer
from fairseq.tasks import FairseqTask
from fairseq.trainer import Trainer
from omegaconf import OmegaConf

import fairseq_mhe
from fairseq_mhe import safe_loading
from fairseq_mhe.common.checkpoint_files import read_checkpoint
from fairseq_mhe.common.errors import UserError
from fairseq_mhe.models.build import build
from fairseq_mhe.models.families import ROBERTA
from fairseq_mhe.models.tasks import make_task
from tests.fixtures.processes import WITHOUT_FAIRSEQ, python

USER_DIR = str(Path(fairseq_mhe.__file__).parent)


def parsed(*words: str) -> argparse.Namespace:
    """fairseq-train's options."""
    return options.parse_args_and_arch(options.get_training_parser(), ["no-data", *words])


@pytest.mark.parametrize("fixed_shapes", [None, np.array([[2, 10], [3, 20]])])
@pytest.mark.parametrize("sentences", [3, 500, 504])
def test_no_sentence_is_lost(sentences: int, fixed_shapes: np.ndarray | None) -> None:
    lengths = np.sort(np.arange(sentences) % 17 + 3)
    numbers = np.arange(sentences)
    arguments = {
        "num_tokens_fn": lambda i: lengths[i],
        "num_tokens_vec": lengths,
        "max_tokens": 200,
        "required_batch_size_multiple": 8,
        "fixed_shapes": fixed_shapes,
    }
    batches = data_utils.batch_by_size(numbers, **arguments)
    assert np.concatenate(batches).tolist() == numbers.tolist()
    without = data_utils.batch_by_size.__wrapped__(numbers, **arguments)
    if sentences % 8 and fixed_shapes is None:
        assert sum(map(len, without)) < sentences, "fairseq loses no batch now: remove this fix"


def test_single_lines_are_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    """A causal model continues single lines, and --sample-break-mode eos trains on them."""
    arguments = [torch.tensor([4, 5, 2]), torch.tensor([6, 2])], [3, 2], None, 1, 2, "eos"
    assert [block.tolist() for block in TokenBlockDataset(*arguments)] == [[4, 5, 2], [6, 2]]
    monkeypatch.delattr(np, "compat")
    with pytest.raises(AttributeError, match="compat"):  # else: remove the fix
        TokenBlockDataset(*arguments)


def test_damaged_binary_data_and_dictionaries_are_named(tmp_path: Path) -> None:
    for suffix in ("idx", "bin"):
        (tmp_path / f"train.{suffix}").touch()
    (tmp_path / "dict.en.txt").write_bytes(b"\xff\xfe 3\n")
    with pytest.raises(UserError, match=r"cannot read .*train"):
        data_utils.load_indexed_dataset(str(tmp_path / "train"), None, "mmap")
    with pytest.raises(UserError, match=r"cannot read .*dict\.en\.txt"):
        Dictionary.load(str(tmp_path / "dict.en.txt"))


def test_a_resumed_epoch_has_the_batches_of_epoch_1() -> None:
    sentences, dictionary = torch.arange(4, 31).split(3), make_task(40).source_dictionary
    pairs = data.LanguagePairDataset(sentences, np.full(9, 3), dictionary)
    results = []
    for get in (FairseqTask.get_batch_iterator, FairseqTask.get_batch_iterator.__wrapped__):
        epochs = [get(make_task(40), pairs, max_sentences=4, epoch=epoch) for epoch in (1, 2)]
        results.append(all(map(np.array_equal, *(epoch.frozen_batches for epoch in epochs))))
    assert results == [True, False], "fairseq's batches are equal now: remove this half of the fix"


def test_each_epoch_masks_other_words_also_in_worker_processes() -> None:
    task, results = ROBERTA.task(40), []
    for get in (FairseqTask.get_batch_iterator, FairseqTask.get_batch_iterator.__wrapped__):
        words = data.ListDataset([torch.arange(4, 34)] * 2)
        masked = data.MaskTokensDataset(words, task.source_dictionary, 1, task.mask_idx)
        padded = data.NestedDictionaryDataset({"x": data.RightPadDataset(masked, 1)}, [np.ones(2)])
        batches = get(task, padded, max_sentences=2, num_workers=1)
        first, second = (next(batches.next_epoch_itr())["x"] for _ in range(2))
        results.append(torch.equal(first, second))
    assert results == [False, True], "workers know the epoch now: remove this half of the fix"


@pytest.mark.parametrize(
    ("updates", "ends", "numbered"), [(20, True, True), (21, True, False), (20, False, True)]
)
def test_a_checkpoint_at_an_epochs_end_has_its_number(
    tmp_path: Path, updates: int, ends: bool, numbered: bool
) -> None:
    """fairseq's function, with the fix and without, saves empty files instead of checkpoints."""
    with_fix = checkpoint_utils.save_checkpoint
    saved: list[list[str]] = []
    for save in (with_fix, with_fix.__wrapped__):
        folder = tmp_path / str(len(saved))
        folder.mkdir()
        options = {"save_dir": str(folder), "save_interval_updates": 10}
        cfg = OmegaConf.structured(CheckpointConfig(no_epoch_checkpoints=True, **options))
        trainer, iterator = MagicMock(checkpoint_suffix="", data_parallel_rank=0), MagicMock()
        trainer.get_num_updates.return_value = updates
        trainer.save_checkpoint.side_effect = lambda path, *_: Path(path).touch() or path
        iterator.epoch, iterator.end_of_epoch.return_value = 3, ends
        save(cfg, trainer, iterator, None)
        first = Path(trainer.save_checkpoint.call_args_list[0].args[0])
        saved.append([first.name, *(path.name for path in folder.iterdir())])
    number = f"checkpoint_3_{updates}.pt"
    assert (number in saved[0]) == numbered
    assert (saved[0][0] == number) == numbered, "a kill after checkpoint_last.pt would lose it"
    assert "checkpoint_last.pt" in saved[0]
    if ends:
        assert number not in saved[1], "fairseq numbers checkpoints itself now: remove the fix"


def trainer_in(precision: str) -> Trainer:
    words = f"--arch transformer_mhe_tiny --optimizer adam --lr 0.01 --{precision} --cpu"
    args = parsed(*words.split(), "--share-all-embeddings", "--required-batch-size-multiple", "1")
    cfg, task = convert_namespace_to_omegaconf(args), make_task(20)
    cfg.common.fp16_no_flatten_grads = False
    model = build(cfg.model, task, seed=3)
    return Trainer(cfg, task, model, CrossEntropyCriterion(task, sentence_avg=False))


@pytest.mark.parametrize(("precision", "dtype"), [("bf16", "bfloat16"), ("fp16", "float16")])
def test_checkpoints_hold_float32_weights(
    precision: str, dtype: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The optimizer's survive saving and loading; those of fp16 are one tensor, as on a GPU."""
    monkeypatch.setattr(torch.cuda, "current_device", lambda: None)
    first = trainer_in(precision)
    first.optimizer.backward(sum(parameter.sum() for parameter in first.model.parameters()))
    first.optimizer.step()
    first.consolidate_optimizer()
    first.save_checkpoint(str(tmp_path / "with.pt"), {"train_iterator": {"epoch": 1}})
    saved = read_checkpoint(tmp_path / "with.pt")["model"]
    weight = saved["encoder.layers.0.fc1.weight"]
    assert not torch.equal(weight, weight.to(getattr(torch, dtype)).float()), "they are not rounded"
    shared = {saved[f"{side}.embed_tokens.weight"].data_ptr() for side in ("encoder", "decoder")}
    assert len(shared) == 1

    def same(other: Trainer) -> bool:
        weights = (trainer.optimizer.fp32_weights_grads[0] for trainer in (first, other))
        return all(map(torch.equal, *weights))

    again, without, new = (trainer_in(precision) for _ in range(3))
    new.model.load_state_dict = MagicMock()  # keeps its weights, as a model with a new head does
    for trainer in (again, new):
        trainer.load_checkpoint(str(tmp_path / "with.pt"))
    assert (same(again), same(new)) == (True, False)
    Trainer.load_checkpoint.__wrapped__(without, str(tmp_path / "with.pt"))
    assert not same(without), "fairseq keeps full precision itself: remove both fixes"


def test_bf16_keeps_the_gpu_and_validate_needs_no_task() -> None:
    words = ["--arch", "transformer", "--bf16"]
    assert not parsed(*words).tpu
    without = options.parse_args_and_arch.__wrapped__(options.get_training_parser(), ["d", *words])
    assert without.tpu, "fairseq's --bf16 no longer means --tpu: remove the fix"
    assert options.get_validation_parser().get_default("task") is None, "else: remove the fix"


def test_fp16_without_a_gpu_needs_no_cuda_device(monkeypatch: pytest.MonkeyPatch) -> None:
    args = parsed("--arch", "transformer", "--fp16", "--cpu")
    assert args.fp16_no_flatten_grads
    parameters = [torch.nn.Parameter(torch.ones(2, 3, dtype=torch.float16))]
    no_gpu = Mock(side_effect=RuntimeError("there is no GPU"))
    monkeypatch.setattr(torch.cuda, "current_device", no_gpu)
    FP16Optimizer.build_fp32_params(args, parameters, flatten=False)
    with pytest.raises(RuntimeError, match="no GPU"):  # else: remove the fix
        FP16Optimizer.build_fp32_params(args, parameters, flatten=True)


def test_eval_lm_logs_though_an_import_of_fairseq_configures_logging() -> None:
    script = f"""{WITHOUT_FAIRSEQ}
import logging; del sys.modules["fairseq"]
import fairseq_cli.eval_lm
print(logging.root.level, len(logging.root.handlers))
from argparse import Namespace; from fairseq import utils
utils.import_user_module(Namespace(user_dir={USER_DIR!r}))
logging.getLogger("fairseq_cli.eval_lm").info("Loss")
"""
    without, *lines = python(script).stdout.splitlines()
    assert without == "10 1", "fairseq leaves logging alone: remove this fix, and from quiet_import"
    assert lines[-1].endswith("| INFO | fairseq_cli.eval_lm | Loss")


@pytest.mark.parametrize(
    ("words", "option", "arch"),
    [
        ("--arch transformer --attention mhe_mul", "--attention", "transformer"),
        ("--cross-attention=mha --arch=transformer", "--cross-attention", "transformer"),
        ("-a roberta_base --encoder-attention mha", "--encoder-attention", "roberta_base"),
    ],
)
def test_attention_of_ours_for_an_architecture_of_fairseqs_is_one_line(
    words: str, option: str, arch: str
) -> None:
    with pytest.raises(UserError, match=f"^{option} needs an arch.*, not --arch {arch}$"):
        parsed(*words.split())


@pytest.mark.parametrize("arch", ["lstm", "fconv_iwslt_de_en"])
def test_attention_of_fairseqs_own_is_left_to_it(arch: str) -> None:
    args = parsed("--arch", arch, "--decoder-attention", "False")
    assert args.decoder_attention == "False"
    build(args, make_task(20))  # fconv's layers are "[(256, 3)] * 4 + ..."


def test_a_users_architecture_of_our_model_takes_kinds(monkeypatch: pytest.MonkeyPatch) -> None:
    for registry in (ARCH_MODEL_REGISTRY, ARCH_CONFIG_REGISTRY):
        monkeypatch.setitem(registry, "mine", registry["transformer_mhe_tiny"])
    assert parsed("--arch", "mine", "--attention", "mqa").attention == "mqa"


def test_missing_biases_are_not_called_shared(caplog: pytest.LogCaptureFixture) -> None:
    log = logging.getLogger("fairseq.trainer")
    with caplog.at_level(logging.INFO, logger=log.name):
        for name in ("bias", "weight"):
            log.info(f"detected shared parameter: a.{name} <- b.{name}")
    assert caplog.messages == ["detected shared parameter: a.weight <- b.weight"]


def test_fairseqs_modules_evaluate_literals_only() -> None:
    names, folder = set(), Path(checkpoint_utils.__file__).parents[1]
    for path in folder.glob("fairseq/**/*.py"):
        if re.search(r"(?<![.\w])eval\(", path.read_text("utf-8")) and "examples" not in path.parts:
            names.add(".".join(path.relative_to(folder).with_suffix("").parts))
    assert {"fairseq.utils", "fairseq.optim.adam", "fairseq.models.transformer_lm"} <= names
    assert {vars(sys.modules[name])["eval"] for name in names} == {safe_loading._evaluate}
    with pytest.raises(UserError, match=r"'\[1\] \* 9+ is not a number, list"):
        safe_loading._evaluate(f"[1] * {'9' * 99}")
