#!/usr/bin/env bash
# Trains a language model on the text of data-prep/text.sh; the same command resumes: ARCH ATTENTION --data DATA --out RUNS
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/environment.sh"
start fairseq fairseq_mhe.cli pretrain "$@"
