"""WikiText-103 (Merity et al. 2017) from its unpacked archive, as a folder to train on."""

from dataclasses import dataclass
from pathlib import Path

from fairseq_mhe.prepare.corpora.known import default_out
from fairseq_mhe.prepare.corpora.language_corpora import PublishedText, run_published


@dataclass(frozen=True, kw_only=True)
class WikiText103(PublishedText):
    """Articles are documents. The address that it was published at is gone: no download."""

    script = "wikitext103.sh"
    names = (
        ("wiki.train.tokens", "wiki.valid.tokens", "wiki.test.tokens"),
        ("wiki.train.raw", "wiki.valid.raw", "wiki.test.raw"),
    )
    articles = True

    out: Path = default_out("runs/wikitext103-data")


if __name__ == "__main__":
    run_published(WikiText103, __doc__)
