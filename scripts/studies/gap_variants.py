"""The variants of the gap study: each changes one thing of a row's MHE-Mul, or of MHA."""

from collections.abc import Iterator, Mapping

from fairseq_mhe.models.architectures import Row, sizes
from fairseq_mhe.models.options import PLACES
from fairseq_mhe.runs.recipes import Training
from studies.trainings import REFERENCE, Variant, everywhere

MHA, MHE = "mha", "mhe_mul"
#: What the variants ask, and a name for it.
QUESTIONS = {
    REFERENCE: "what is compared with",
    "init": "initial scale of the shared projections "
    "(the default is Xavier's, divided by the root of 2)",
    "embeddings": "offset and spread of the head embeddings (default: 1 and 0.02)",
    "decay": "weight decay of the head embeddings (default: none)",
    "rate": "learning rate, MHA's too",
    "place": "MHE in one place only",
    "heads": "number of heads at the same parameters, MHA's too",
}
#: Numbers of heads that are tried.
_HEADS = (1, 2, 8, 16)


def is_mhe(variant: Variant) -> bool:
    """Whether all its attention is MHE, so that it could take the place of the default."""
    return set(variant.attention.values()) == {MHE}


def variants(row: str, training: Training) -> list[Variant]:
    """Every variant of a row (a key of ``RECIPES``), the two references first."""
    mha, mhe = everywhere(MHA), everywhere(MHE)
    found: list[Variant] = []

    def add(
        name: str, question: str, attention: Mapping[str, str], *options: str, **changes: float
    ) -> None:
        found.append(Variant(name, question, attention, options, changes))

    add(MHA, REFERENCE, mha)
    add(MHE, REFERENCE, mhe)
    for init in ("head", "xavier"):
        add(f"init-{init}", "init", mhe, "--shared-projection-init", init)
    for std in ("0.1", "0.5"):
        add(f"std-{std}", "embeddings", mhe, "--head-embedding-std", std)
    far = ("--head-embedding-offset", "0", "--head-embedding-std", "1")
    add("offset-0", "embeddings", mhe, *far)
    for decay in (0.1, 1.0):
        add(f"decay-{decay:g}", "decay", mhe, head_embedding_weight_decay=decay)
    for prefix, attention in (("", mhe), ("mha-", mha)):
        add(f"{prefix}lr-half", "rate", attention, lr=training.lr * 0.5)
        add(f"{prefix}lr-double", "rate", attention, lr=training.lr * 2.0)
    for place in PLACES:
        add(f"only-{place}", "place", {**mha, place: MHE})
    for kind, heads, width in _heads(sizes(row)):
        options = ["--encoder-attention-heads", str(heads), "--decoder-attention-heads", str(heads)]
        options += ["--attention-head-dim", str(width)]
        name = f"{'mha' if kind == MHA else 'heads'}-{heads}x{width}"
        add(name, "heads", everywhere(kind), *options)
    return found


def _heads(row: Row) -> Iterator[tuple[str, int, int]]:
    """Kind, heads and width: other numbers of heads with the parameters of the row's MHE; MHA."""
    per_width = {heads: row.embed_dim * (heads + 3) + 3 * heads for heads in (row.heads, *_HEADS)}
    parameters = row.embed_dim // row.heads * per_width[row.heads]  # of a sublayer
    for heads in _HEADS:
        if heads != row.heads:
            yield MHE, heads, round(parameters / per_width[heads])
    yield MHA, row.heads, round(parameters / (4 * row.embed_dim * row.heads))
