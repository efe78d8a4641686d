"""A task of SuperGLUE (Wang et al. 2019) in the subwords of a language model's text."""

from fairseq_mhe.prepare.corpora.understanding import run_suite

if __name__ == "__main__":
    run_suite("superglue", __doc__)
