"""The fairseq user-dir: models, architectures, an optimizer, and fixes to fairseq."""

from fairseq_mhe import fairseq_fixes

# What is imported registers itself.
with fairseq_fixes.quiet_import():
    from fairseq_mhe.models import architectures, language_architectures, optimizer  # noqa: F401

fairseq_fixes.apply()
