#!/usr/bin/env bash
# Run a study: gap-study, equal-budget, precision-study, uptrain, collaborative-curve, collaborative-nlu or serving.
# The same command resumes. Finished runs of run_table.sh in the same --out are used, not trained again.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/environment.sh"
export PYTHONPATH="$repository/scripts${PYTHONPATH:+:$PYTHONPATH}"
start fairseq,convert studies "$@"
