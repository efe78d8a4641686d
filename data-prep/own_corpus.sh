#!/usr/bin/env bash
# Parallel text of one's own, in any language pair, to a data folder that fairseq-train reads.
set -euo pipefail

# PYTHON: the interpreter that fairseq-mhe is installed for.
exec "${PYTHON:-python3}" -m fairseq_mhe.cli prepare "$@"
