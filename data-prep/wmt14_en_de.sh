#!/usr/bin/env bash
# WMT14 English-German, from the public archives to a data folder that fairseq-train reads.
set -euo pipefail

# PYTHON: the interpreter that fairseq-mhe is installed for.
exec "${PYTHON:-python3}" -m fairseq_mhe.prepare.wmt14 "$@"
