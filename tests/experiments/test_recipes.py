"""A recipe keeps its shape over another number of updates, and fairseq takes its options."""

import pytest
from fairseq import options

from fairseq_mhe.experiments.recipes import QUICKSTART
from fairseq_mhe.models.architectures import arch_name
from tests.experiments.conftest import TRAINING


def test_a_shorter_training_keeps_the_warm_ups_share() -> None:
    short = TRAINING.shortened(20)
    assert (short.updates, short.warmup_updates, short.interval) == (20, 2, 5)
    assert TRAINING.shortened(40) == TRAINING
    assert TRAINING.shortened(1).warmup_updates == 1


@pytest.mark.parametrize("updates", [1, 3, 20, 4000])
def test_every_length_has_a_checkpoint_at_its_end(updates: int) -> None:
    interval = QUICKSTART.training.shortened(updates).interval
    assert 1 <= interval <= updates


def test_fairseq_understands_the_training_options() -> None:
    words = ["data", "--arch", arch_name(QUICKSTART.row), *QUICKSTART.training.flags()]
    args = options.parse_args_and_arch(options.get_training_parser(), words)
    wanted = QUICKSTART.training
    assert (args.max_update, args.max_tokens, args.lr, args.warmup_updates) == (
        wanted.updates,
        wanted.max_tokens,
        [wanted.lr],
        wanted.warmup_updates,
    )
    assert (args.dropout, args.label_smoothing, args.share_all_embeddings) == (wanted.dropout, 0.1, True)
    assert (args.optimizer, args.adam_betas, args.lr_scheduler) == ("adam", "(0.9, 0.98)", "polynomial_decay")


def test_fairseq_understands_the_decoding_options() -> None:
    words = ["data", "--path", "model.pt", *QUICKSTART.decoding.flags()]
    args = options.parse_args_and_arch(options.get_generation_parser(), words)
    wanted = QUICKSTART.decoding
    assert (args.beam, args.lenpen, args.max_tokens) == (wanted.beam, wanted.lenpen, wanted.max_tokens)
    assert (args.max_len_a, args.max_len_b) == (wanted.max_len_a, wanted.max_len_b)
