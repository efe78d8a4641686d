"""The fairseq user-dir: importing it registers the models and architectures, and applies the fixes fairseq needs."""

import warnings

with warnings.catch_warnings():
    # fairseq and hydra warn about their own code while they are imported; nobody who uses them can act on it.
    warnings.simplefilter("ignore")
    import fairseq  # noqa: F401

    from fairseq_mhe import fairseq_fixes
    from fairseq_mhe.models import architectures  # noqa: F401 - registers itself

fairseq_fixes.apply()
