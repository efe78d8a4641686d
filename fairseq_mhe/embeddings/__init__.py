"""Token embeddings: fairseq's table, and those that are computed from hashes of words."""

from fairseq.data import Dictionary

from fairseq_mhe.embeddings.base import HashedEmbedding
from fairseq_mhe.embeddings.hash_add import HashAdd
from fairseq_mhe.embeddings.hash_emb import HashEmb
from fairseq_mhe.embeddings.hash_pool import HashPool
from fairseq_mhe.embeddings.hash_proj import HashProj
from fairseq_mhe.embeddings.hashes import DEFAULT_HASH, HASHES, hash_of, hashes_of

#: One row a word, learnt: fairseq's own.
TABLE = "table"
HASHED: dict[str, type[HashedEmbedding]] = {
    "hash_emb": HashEmb,
    "hash_pool": HashPool,
    "hash_add": HashAdd,
    "hash_proj": HashProj,
}
EMBEDDINGS = (TABLE, *HASHED)


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
) -> HashedEmbedding:
    """A hashed embedding of a dictionary (see :class:`HashedEmbedding`).

    Raises:
        ValueError: there is no such kind or hash.
    """
    check_embedding(kind, hash_name)
    hashes = hashes_of(dictionary, hash_name or DEFAULT_HASH)
    return HASHED[kind](hashes, embed_dim, std, dropout)


__all__ = [
    "DEFAULT_HASH",
    "EMBEDDINGS",
    "HASHED",
    "HASHES",
    "TABLE",
    "HashedEmbedding",
    "build_hashed",
    "check_embedding",
    "hash_of",
    "hashes_of",
]
