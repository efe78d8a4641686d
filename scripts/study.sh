#!/usr/bin/env bash
# Runs a study: collaborative-curve, collaborative-nlu, uptrain, serving, gap-study, equal-budget or precision-study.
# Stopped at any moment, the same command goes on from there. Run folders of run_table.sh in --out are taken.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/environment.sh"
export PYTHONPATH="$repository/scripts${PYTHONPATH:+:$PYTHONPATH}"
start fairseq,convert studies "$@"
