#!/usr/bin/env bash
# The embedded English-German corpus (home-assistant/) as a data folder that fairseq-train reads.
set -euo pipefail

# PYTHON: the interpreter that fairseq-mhe is installed for.
exec "${PYTHON:-python3}" -m fairseq_mhe.prepare.home_assistant "$@"
