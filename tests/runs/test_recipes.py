"""Every row has the published numbers and the well-known recipe; batches are shared out whole;
fairseq takes it all.
"""

from dataclasses import replace

import pytest
from fairseq import options

from fairseq_mhe.common.errors import UserError
from fairseq_mhe.models.architectures import ROWS, SMALL_ROWS, arch_name
from fairseq_mhe.runs.recipes import QUICKSTART, RECIPES, recipe
from tests.fixtures.runs import TRAINING

#: Row: dropout, updates, averaged checkpoints. The first two from the paper's table, the last from
#: Vaswani et al. 2017.
PUBLISHED = {
    "base": (0.1, 100_000, 5),
    "16x32": (0.1, 100_000, 5),
    "4x128": (0.1, 100_000, 5),
    "4l": (0.1, 100_000, 5),
    "8l": (0.1, 100_000, 5),
    "12h": (0.15, 100_000, 5),
    "big": (0.3, 300_000, 20),
}


def test_every_row_has_a_recipe() -> None:
    assert set(RECIPES) == {*ROWS, *SMALL_ROWS}
    assert all(found.row == row for row, found in RECIPES.items())
    assert recipe("12H") is RECIPES["12h"]
    with pytest.raises(UserError, match="unknown row 'huge'; choose of: base, 16x32"):
        recipe("huge")


@pytest.mark.parametrize("row", PUBLISHED)
def test_the_papers_rows_have_the_published_and_the_well_known_numbers(row: str) -> None:
    training, decoding = RECIPES[row].training, RECIPES[row].decoding
    assert (training.dropout, training.updates, training.average) == PUBLISHED[row]
    assert training.batch_tokens == 8 * 4096
    assert (training.lr, training.warmup_updates, training.label_smoothing) == (0.0005, 4000, 0.1)
    assert training.interval == 1000
    assert (decoding.beam, decoding.lenpen, decoding.max_len_a, decoding.max_len_b) == (
        4,
        0.6,
        1,
        50,
    )


def test_iwslt_has_fairseqs_recipe() -> None:
    """As its examples/translation/README.md has it, read by fairseq-train and fairseq-generate."""
    words = ["data", "--arch", arch_name("iwslt"), *RECIPES["iwslt"].training.flags()]
    args = options.parse_args_and_arch(options.get_training_parser(), words)
    assert (args.optimizer, args.adam_betas, args.clip_norm, args.weight_decay) == (
        "adam",
        "(0.9, 0.98)",
        0.0,
        0.0001,
    )
    assert (args.lr, args.lr_scheduler, args.warmup_updates) == ([5e-4], "inverse_sqrt", 4000)
    assert (args.dropout, args.label_smoothing, args.max_tokens, args.max_update) == (
        0.3,
        0.1,
        4096,
        50_000,
    )
    assert (RECIPES["iwslt"].training.batch_tokens, RECIPES["iwslt"].training.interval) == (
        4096,
        1000,
    )
    words = ["data", "--path", "model.pt", *RECIPES["iwslt"].decoding.flags()]
    args = options.parse_args_and_arch(options.get_generation_parser(), words)
    plain = options.parse_args_and_arch(
        options.get_generation_parser(), ["data", "--path", "model.pt"]
    )
    assert args.beam == plain.beam == 5
    assert (args.lenpen, args.max_len_a, args.max_len_b) == (
        plain.lenpen,
        plain.max_len_a,
        plain.max_len_b,
    )


def test_multi30k_has_the_published_recipe() -> None:
    """As Wu et al.'s README-baseline.md has it, on two devices, read by fairseq-train."""
    training, decoding = RECIPES["multi30k"].training, RECIPES["multi30k"].decoding
    words = ["data", "--arch", arch_name("multi30k"), *training.flags()]
    args = options.parse_args_and_arch(options.get_training_parser(), words)
    sizes = (args.encoder_embed_dim, args.decoder_ffn_embed_dim, args.decoder_attention_heads)
    assert (*sizes, args.encoder_layers, args.decoder_normalize_before) == (128, 256, 4, 4, False)
    assert (args.dropout, args.clip_norm, hasattr(args, "attention_dropout")) == (0.3, 25.0, False)
    assert (args.lr, args.lr_scheduler, args.warmup_updates) == ([0.005], "inverse_sqrt", 2000)
    assert (args.max_update, args.max_tokens, training.update_freq(1)) == (8000, 4096, 2)
    assert (training.patience, training.average, decoding.beam) == (10, 10, 5)


def test_where_patience_may_end_it_fewer_updates_change_nothing_before() -> None:
    training = RECIPES["multi30k"].training
    assert training.shortened(2500) == replace(training, updates=2500)


def test_settings_make_the_training_again() -> None:
    for found in RECIPES.values():
        assert type(found.training)(**found.training.settings()) == found.training


def test_a_shorter_training_keeps_the_warm_ups_share() -> None:
    short = TRAINING.shortened(20)
    assert (short.updates, short.warmup_updates, short.interval) == (20, 2, 5)
    assert TRAINING.shortened(40) == TRAINING
    assert TRAINING.shortened(1).warmup_updates == 1


@pytest.mark.parametrize("updates", [1, 3, 20, 4000])
def test_every_length_has_a_checkpoint_at_its_end(updates: int) -> None:
    interval = QUICKSTART.training.shortened(updates).interval
    assert 1 <= interval <= updates


@pytest.mark.parametrize(("devices", "update_freq"), [(1, 8), (2, 4), (4, 2), (8, 1)])
def test_the_batch_is_the_same_on_any_number_of_devices(devices: int, update_freq: int) -> None:
    training = RECIPES["base"].training
    assert training.update_freq(devices) == update_freq
    assert training.max_tokens * devices * update_freq == training.batch_tokens
    assert training.arithmetic(devices).startswith("32,768 tokens an update = 4,096 tokens x ")
    assert training.arithmetic(devices).endswith(f"x update-freq {update_freq}")


@pytest.mark.parametrize("devices", [3, 16])
def test_devices_that_cannot_share_the_batch_are_refused(devices: int) -> None:
    with pytest.raises(
        UserError, match=rf"which {devices} devices cannot share evenly: take 1, 2, 4, 8 devices"
    ):
        RECIPES["base"].training.update_freq(devices)


def test_smaller_mini_batches_keep_the_batch() -> None:
    training = RECIPES["base"].training.batched(32768, 1024)
    assert (training.max_tokens, training.batches, training.batch_tokens) == (1024, 32, 32768)
    with pytest.raises(
        UserError, match=r"a batch of 32,768 tokens cannot be made of mini-batches of 5,000"
    ):
        training.batched(32768, 5000)


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
    assert (args.dropout, args.label_smoothing, args.share_all_embeddings) == (
        wanted.dropout,
        0.1,
        True,
    )
    assert (args.optimizer, args.adam_betas, args.lr_scheduler) == (
        "adam",
        "(0.9, 0.98)",
        "polynomial_decay",
    )


def test_fairseq_understands_the_papers_schedule() -> None:
    words = ["data", "--arch", arch_name("big"), *RECIPES["big"].training.flags()]
    args = options.parse_args_and_arch(options.get_training_parser(), words)
    assert (args.lr_scheduler, args.warmup_init_lr, args.warmup_updates) == (
        "inverse_sqrt",
        1e-7,
        4000,
    )
    assert (args.dropout, args.clip_norm, args.weight_decay) == (0.3, 0.0, 0.0)


def test_fairseq_understands_the_decoding_options() -> None:
    words = ["data", "--path", "model.pt", *QUICKSTART.decoding.flags()]
    args = options.parse_args_and_arch(options.get_generation_parser(), words)
    wanted = QUICKSTART.decoding
    assert (args.beam, args.lenpen, args.max_tokens) == (
        wanted.beam,
        wanted.lenpen,
        wanted.max_tokens,
    )
    assert (args.max_len_a, args.max_len_b) == (wanted.max_len_a, wanted.max_len_b)


def test_decay_of_head_embeddings_in_fp16_leaves_the_gradients_as_they_are() -> None:
    """Flat ones are a single parameter to adam_mhe, which refuses it; on a CPU they never are."""
    decaying = replace(QUICKSTART.training, head_embedding_weight_decay=0.1, precision="fp16")
    assert {"adam_mhe", "--fp16", "--fp16-no-flatten-grads"} <= set(decaying.flags())
