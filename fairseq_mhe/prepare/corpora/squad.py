"""SQuAD 1.1 or 2.0 (Rajpurkar et al. 2016, 2018) in the subwords of a language model's text."""

from fairseq_mhe.prepare.corpora.understanding import run_suite

if __name__ == "__main__":
    run_suite("squad", __doc__)
