"""The fairseq user-dir: importing it registers the models and architectures, and applies the fixes fairseq needs."""

from fairseq_mhe import fairseq_fixes

with fairseq_fixes.quiet_import():
    from fairseq_mhe.models import architectures  # noqa: F401 - registers itself

fairseq_fixes.apply()
