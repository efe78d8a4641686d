"""The fairseq user-dir: models, architectures, an optimizer, and fixes to fairseq."""

from fairseq_mhe import fairseq_fixes

with fairseq_fixes.quiet_import():
    from fairseq_mhe.models import architectures, optimizer  # noqa: F401 - they register themselves

fairseq_fixes.apply()
