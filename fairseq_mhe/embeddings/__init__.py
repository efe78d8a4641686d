"""Token embeddings: fairseq's table, and those that are computed from hashes of words."""

from pathlib import Path
from typing import Any

from fairseq.data import Dictionary
from fairseq.utils import split_paths

from fairseq_mhe.embeddings.base import HashedEmbedding
from fairseq_mhe.embeddings.hash_add import HashAdd
from fairseq_mhe.embeddings.hash_emb import HashEmb
from fairseq_mhe.embeddings.hash_pool import HashPool
from fairseq_mhe.embeddings.hash_proj import HashProj
from fairseq_mhe.embeddings.hashes import DEFAULT_HASH, HASHES, hash_of, hashes_of
from fairseq_mhe.embeddings.stored import check_hash, hash_in, take_hashes, write_hashes

#: One row a word, learnt: fairseq's own.
TABLE = "table"
HASHED: dict[str, type[HashedEmbedding]] = {
    "hash_emb": HashEmb,
    "hash_pool": HashPool,
    "hash_add": HashAdd,
    "hash_proj": HashProj,
}
EMBEDDINGS = (TABLE, *HASHED)
#: The most that a hashed embedding drops, HashFormers' own: weights of `HashAdd` are of all words
#: at once, so that it hardly learns with what models of small corpora drop, 0.3.
DROPOUT = 0.1
#: Of each kind of ``HASHED``, the end of the name of a weight with rows as wide as the embedding.
HASHED_ROWS = ("table.weight", "special")


def check_embedding(kind: str, hash_name: str | None) -> None:
    """Refuse what is none.

    Raises:
        ValueError: an unknown kind or hash, or a hash for a table, which has no use for it.
    """
    if kind not in EMBEDDINGS:
        raise ValueError(f"unknown embedding {kind!r}; choose one of: {', '.join(EMBEDDINGS)}")
    if hash_name is not None:
        hash_of(hash_name)
        if kind == TABLE:
            raise ValueError(
                f"--hash {hash_name} has no effect on --embedding {TABLE}: leave it out, or choose "
                f"one of: {', '.join(HASHED)}"
            )


def build_hashed(
    kind: str,
    hash_name: str | None,
    dictionary: Dictionary,
    embed_dim: int,
    std: float = 0.02,
    dropout: float = 0.0,
    folder: Path | None = None,
) -> HashedEmbedding:
    """A hashed embedding of a dictionary (see :class:`HashedEmbedding`).

    ``dropout``: the model's; the embedding's own is at most ``DROPOUT``.
    ``folder``: where the dictionary was read, and perhaps the hashes of its words.

    Raises:
        ValueError: there is no such kind or hash.
        UserError: the folder has hashes of another kind or of other words.
    """
    check_embedding(kind, hash_name)
    name = hash_name or DEFAULT_HASH
    if folder is not None:
        take_hashes(folder, dictionary, name)
    return HASHED[kind](hashes_of(dictionary, name), embed_dim, std, min(dropout, DROPOUT))


def folder_of(task: Any) -> Path | None:
    """Where a task of fairseq's reads its source's dictionary; None of one without data."""
    data = getattr(getattr(task, "cfg", None), "data", None)
    if not isinstance(data, str):
        return None
    first = Path(split_paths(data)[0])
    inputs = first / "input0"  # of sentence_prediction
    return inputs if inputs.is_dir() else first


__all__ = [
    "DEFAULT_HASH",
    "EMBEDDINGS",
    "HASHED",
    "HASHED_ROWS",
    "HASHES",
    "TABLE",
    "HashEmb",
    "HashedEmbedding",
    "build_hashed",
    "check_embedding",
    "check_hash",
    "folder_of",
    "hash_in",
    "hash_of",
    "hashes_of",
    "write_hashes",
]
