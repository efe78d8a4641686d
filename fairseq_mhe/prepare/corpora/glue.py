"""A task of GLUE (Wang et al. 2018) in the subwords of a language model's text."""

from fairseq_mhe.prepare.corpora.understanding import run_suite

if __name__ == "__main__":
    run_suite("glue", __doc__)
