#!/usr/bin/env bash
# Trains a masked or causal language model on running text: ARCH ATTENTION --data DATA --out RUNS, where data-prep/text.sh
# makes DATA. Finished work is skipped; after a stop the same command resumes.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/environment.sh"
start fairseq fairseq_mhe.cli pretrain "$@"
