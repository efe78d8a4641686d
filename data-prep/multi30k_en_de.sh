#!/usr/bin/env bash
# Multi30k English-German, from the public files to a data folder that fairseq-train reads.
set -euo pipefail

# PYTHON: the interpreter that fairseq-mhe is installed for.
exec "${PYTHON:-python3}" -m fairseq_mhe.prepare.multi30k "$@"
