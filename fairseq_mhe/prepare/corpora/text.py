"""Running text of one's own, documents with empty lines between them, as a folder to train on."""

from fairseq_mhe.prepare.corpora.known import run_corpus
from fairseq_mhe.prepare.running_text import TextConfig, prepare_text

if __name__ == "__main__":
    run_corpus("text.sh", TextConfig, prepare_text, __doc__)
