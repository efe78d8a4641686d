#!/usr/bin/env bash
# Trains a masked or causal language model on a folder of data-prep/text.sh: ARCH ATTENTION --data DATA --out RUNS.
# Stopped at any moment, the same command goes on from there.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/environment.sh"
start fairseq fairseq_mhe.cli pretrain "$@"
