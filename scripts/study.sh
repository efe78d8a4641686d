#!/usr/bin/env bash
# Runs a study: collaborative-curve, collaborative-nlu, uptrain, serving, gap-study, equal-budget or precision-study.
# Stopped at any moment, the same command goes on from there. Run folders of run_table.sh in --out are taken.
set -euo pipefail
# shellcheck source=scripts/environment.sh
source "$(dirname "${BASH_SOURCE[0]}")/environment.sh"
set_up fairseq,convert "$@"
export PYTHONPATH="$repository/scripts${PYTHONPATH:+:$PYTHONPATH}"
run -m studies
