#!/usr/bin/env bash
# Trains a masked or causal language model on a folder of data-prep/text.sh: ARCH ATTENTION --data DATA --out RUNS.
# Stopped at any moment, the same command goes on from there.
set -euo pipefail
# shellcheck source=scripts/environment.sh
source "$(dirname "${BASH_SOURCE[0]}")/environment.sh"
set_up fairseq "$@"
run -m fairseq_mhe.cli pretrain
