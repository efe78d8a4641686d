#!/usr/bin/env bash
# IWSLT14 German-English, prepared as by fairseq's recipe, from the public archive to a data folder that fairseq-train reads.
set -euo pipefail

# PYTHON: the interpreter that fairseq-mhe is installed for.
exec "${PYTHON:-python3}" -m fairseq_mhe.prepare.iwslt14 "$@"
