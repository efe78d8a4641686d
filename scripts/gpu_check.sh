#!/usr/bin/env bash
# Checks fairseq-mhe on a GPU, in about four minutes: every kind of attention against the plain reference in float32,
# fp16 and bf16, what a step of its beam search asks of the GPU, short trainings and translation in bf16 and fp16, and
# the benchmarks. Prints one table, which it keeps with all logs in --out (default: runs/gpu_check). Exit status 1 where
# something does not hold, 2 where torch sees no GPU; --cpu is a dry run in tiny sizes.
set -euo pipefail

# shellcheck source=scripts/environment.sh
source "$(dirname "${BASH_SOURCE[0]}")/environment.sh"

set_up fairseq "$@"
export PYTHONPATH="$repository/scripts${PYTHONPATH:+:$PYTHONPATH}"
run -m gpu_check
