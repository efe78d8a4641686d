#!/usr/bin/env bash
# Checks fairseq-mhe on a GPU, in about eight minutes: whether it is right, and how fast it trains and translates beside
# stock fairseq. gpu_check.md and .json go to --out (default: runs/gpu). Exit status 1 where something does not hold, 2
# where torch sees no GPU; --cpu is a dry run in tiny sizes.
set -euo pipefail
# shellcheck source=scripts/environment.sh
source "$(dirname "${BASH_SOURCE[0]}")/environment.sh"
set_up fairseq,convert "$@"
export PYTHONPATH="$repository/scripts${PYTHONPATH:+:$PYTHONPATH}"
run -m gpu_check
