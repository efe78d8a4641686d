"""How each row is trained and decoded, whatever its attention: every number in one place."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from typing import Any

from fairseq_mhe.common.errors import UserError
from fairseq_mhe.models.architectures import ROWS, SMALL_ROWS
from fairseq_mhe.models.loss import criterion_for
from fairseq_mhe.models.optimizer import optimizer_for
from fairseq_mhe.runs.decoding import Decoding

#: fairseq's --lr-scheduler and what it needs beside --lr and --warmup-updates.
_SCHEDULES = {
    # Falling to zero at the last update: better in a short training than the inverse square root.
    "polynomial_decay": lambda updates: ["--total-num-update", str(updates)],
    "inverse_sqrt": lambda updates: ["--warmup-init-lr", "1e-07"],
}
#: Mini-batches are not divided into smaller ones by themselves: long sentences have to fit.
_LEAST_TOKENS = 256


@dataclass(frozen=True)
class Training:
    """What makes a model beside its row, kind of attention, seed and data.

    ``max_tokens``: tokens of a mini-batch on one device, as fairseq's --max-tokens counts them (the
    longer side, padding included).
    ``checkpoints``: how many times, at equal distances, the model is validated and saved.
    ``average``: how many of the last of them are averaged.
    ``batches``: mini-batches of one update, shared out over the devices.
    ``schedule``: a key of ``_SCHEDULES``.
    ``head_embedding_weight_decay``: MHE's; ``weight_decay`` is then that of all else.
    ``clip_norm``: gradients are scaled down to this norm; 0: never.
    ``patience``: validations in a row without a new lowest loss after which training ends; 0:
    never. With it the model is validated and saved after every epoch, whatever ``checkpoints``.
    ``precision``: float32, bf16 or fp16.
    """

    updates: int
    max_tokens: int
    lr: float
    warmup_updates: int
    dropout: float
    label_smoothing: float
    weight_decay: float
    checkpoints: int
    average: int
    batches: int = 1
    schedule: str = "polynomial_decay"
    head_embedding_weight_decay: float = 0.0
    clip_norm: float = 0.0
    patience: int = 0
    precision: str = "float32"

    @property
    def interval(self) -> int:
        """Updates between two checkpoints."""
        return max(1, self.updates // self.checkpoints)

    @property
    def batch_tokens(self) -> int:
        """Tokens of one update, on all devices together."""
        return self.max_tokens * self.batches

    def settings(self) -> dict[str, Any]:
        """The recipe as a run's settings keep it."""
        return asdict(self)

    def shortened(self, updates: int) -> Training:
        """The same recipe over another number of updates: the warm-up keeps its share.

        Where patience may end a training earlier, ``updates`` is a limit, and the warm-up stays.
        """
        if self.patience:
            return replace(self, updates=updates)
        warmup_updates = max(1, self.warmup_updates * updates // self.updates)
        return replace(self, updates=updates, warmup_updates=warmup_updates)

    def batched(self, batch_tokens: int, max_tokens: int) -> Training:
        """The recipe with ``batch_tokens`` an update; a device takes ``max_tokens`` at a time.

        Raises:
            UserError: the one is no multiple of the other.
        """
        if batch_tokens % max_tokens:
            raise UserError(
                f"a batch of {batch_tokens:,} tokens cannot be made of mini-batches of "
                f"{max_tokens:,}: choose --batch-tokens as a multiple of --max-tokens"
            )
        return replace(self, max_tokens=max_tokens, batches=batch_tokens // max_tokens)

    def shared_by(self, devices: int) -> Training:
        """The same batch in smaller mini-batches that ``devices`` can share evenly.

        It stays as it is where they can already, or cannot at all.
        """
        if self.batches % devices:
            most = self.batch_tokens // _LEAST_TOKENS
            for batches in range(devices, most + 1, devices):
                if batches > self.batches and self.batch_tokens % batches == 0:
                    max_tokens = self.batch_tokens // batches
                    return replace(self, max_tokens=max_tokens, batches=batches)
        return self

    def update_freq(self, devices: int) -> int:
        """Mini-batches that each device takes before an update: all together take ``batches``.

        Raises:
            UserError: they cannot be shared out evenly.
        """
        if self.batches % devices:
            fitting = ", ".join(str(n) for n in range(1, self.batches + 1) if self.batches % n == 0)
            raise UserError(
                f"an update of {self.batch_tokens:,} tokens is {self.batches} mini-batches of "
                f"{self.max_tokens:,}, which {devices} devices cannot share evenly: take {fitting} "
                "devices, or another --max-tokens"
            )
        return self.batches // devices

    def arithmetic(self, devices: int) -> str:
        """The batch in words; refused as by ``update_freq``."""
        many = f"{devices} device{'s' if devices > 1 else ''}"
        return (
            f"{self.batch_tokens:,} tokens an update = {self.max_tokens:,} tokens x {many} x "
            f"update-freq {self.update_freq(devices)}"
        )

    def flags(self) -> list[str]:
        """The recipe as options of fairseq-train, but --update-freq, which depends on devices."""
        words = ["--max-update", str(self.updates), "--max-tokens", str(self.max_tokens)]
        if self.head_embedding_weight_decay:
            words += ["--optimizer", "adam_mhe", "--fp16-no-flatten-grads"]  # flat, all are one
            words += ["--head-embedding-weight-decay", str(self.head_embedding_weight_decay)]
        else:
            words += ["--optimizer", optimizer_for(self.precision)]
        words += ["--adam-betas", "(0.9, 0.98)", "--weight-decay", str(self.weight_decay)]
        words += ["--clip-norm", str(self.clip_norm)] if self.clip_norm else []
        words += [] if self.precision == "float32" else [f"--{self.precision}"]
        words += ["--lr-scheduler", self.schedule, *_SCHEDULES[self.schedule](self.updates)]
        words += ["--lr", str(self.lr), "--warmup-updates", str(self.warmup_updates)]
        words += ["--criterion", criterion_for(self.precision)]
        words += ["--label-smoothing", str(self.label_smoothing)]
        return [*words, "--dropout", str(self.dropout), "--share-all-embeddings"]


@dataclass(frozen=True)
class Recipe:
    """A row (a name of ``fairseq_mhe.models.architectures``) and how it is trained and decoded."""

    row: str
    training: Training
    decoding: Decoding


#: 2 cores, two models side by side, 9 minutes of training. Chosen by BLEU on valid (MHA, one seed,
#: beam 5): 4,000 BPE merges 22.8; 4,000 SentencePiece pieces 21.9, 2,000 pieces 19.1; 1,024 tokens
#: a batch 21.9 against 2,048 with as many tokens in all 20.6; without dropout it overfits after 7
#: epochs.
QUICKSTART = Recipe(
    row="tiny",
    training=Training(
        updates=3000,
        max_tokens=1024,
        lr=0.003,
        warmup_updates=300,
        dropout=0.1,
        label_smoothing=0.1,
        weight_decay=0.0,
        checkpoints=15,
        average=5,
    ),
    decoding=Decoding(beam=5, lenpen=1.0, max_len_a=1.5, max_len_b=20, max_tokens=2000),
)
#: For small standard corpora (some ten thousand pairs) on a CPU: the quickstart's recipe with a
#: lower rate and more dropout for the larger model. Not tuned.
_SMALL = Recipe(
    row="small",
    training=replace(
        QUICKSTART.training,
        updates=6000,
        max_tokens=2048,
        lr=0.001,
        warmup_updates=600,
        dropout=0.2,
    ),
    decoding=QUICKSTART.decoding,
)
#: The paper publishes dropout and steps of each row. The rest is the well-known recipe: fairseq's
#: for scaling_nmt (base on one GPU: 8 mini-batches of 4,096 tokens), averaging and decoding of
#: Vaswani et al. 2017, sections 5 and 6.1.
_PAPER_TRAINING = Training(
    updates=100_000,
    max_tokens=4096,
    lr=0.0005,
    warmup_updates=4000,
    dropout=0.1,
    label_smoothing=0.1,
    weight_decay=0.0,
    checkpoints=100,
    average=5,
    batches=8,
    schedule="inverse_sqrt",
)
_PAPER_DECODING = Decoding(beam=4, lenpen=0.6, max_len_a=1, max_len_b=50, max_tokens=4096)
#: fairseq's for transformer_iwslt_de_en (examples/translation/README.md): about 35 tokenised BLEU
#: on IWSLT14 German-English with MHA. The updates and the average of the last ten checkpoints, each
#: of about an epoch, are those that its examples had for this set (pay_less_attention_paper);
#: max_len_b and lenpen are fairseq-generate's defaults. Unlike there, all embeddings are shared, as
#: everywhere here.
_IWSLT = Recipe(
    row="iwslt",
    training=replace(
        _PAPER_TRAINING,
        updates=50_000,
        dropout=SMALL_ROWS["iwslt"].dropout,
        weight_decay=0.0001,
        checkpoints=50,
        average=10,
        batches=1,
    ),
    decoding=Decoding(beam=5, lenpen=1.0, max_len_a=0, max_len_b=200, max_tokens=4096),
)

#: Transformer-Tiny of Wu et al. 2021 ("Good for Misconceived Reasons: An Empirical Revisiting on
#: the Need for Visual Context in Multimodal Machine Translation", ACL; LividWo/Revisit-MMT,
#: README-baseline.md, and the defaults of its fairseq): two devices of 4,096 tokens, the mean of
#: the last 10 epochs' checkpoints. Its Adam betas, label smoothing and attention dropout are not
#: written there; these are the usual ones.
_MULTI30K = Recipe(
    row="multi30k",
    training=replace(
        _PAPER_TRAINING,
        updates=8000,
        lr=0.005,
        warmup_updates=2000,
        dropout=SMALL_ROWS["multi30k"].dropout,
        average=10,
        batches=2,
        clip_norm=25.0,
        patience=10,
    ),
    decoding=_IWSLT.decoding,
)


def _paper(row: str) -> Recipe:
    training = replace(_PAPER_TRAINING, dropout=ROWS[row].dropout)
    if row == "big":
        training = replace(training, updates=300_000, checkpoints=300, average=20)
    return Recipe(row, training, _PAPER_DECODING)


#: row -> recipe.
RECIPES = {
    **{row: _paper(row) for row in ROWS},
    **{found.row: found for found in (_IWSLT, _MULTI30K, _SMALL, QUICKSTART)},
    **{row: replace(_MULTI30K, row=row) for row in SMALL_ROWS if row.startswith("multi30k_")},
}


def recipe(row: str) -> Recipe:
    """The recipe of a row, whose name may be written in capitals, as the paper does (4L, 12H).

    Raises:
        UserError: there is none.
    """
    found = RECIPES.get(row.lower())
    if found is None:
        raise UserError(f"unknown row {row!r}; choose of: {', '.join(RECIPES)}")
    return found
