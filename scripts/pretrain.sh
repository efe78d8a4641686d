#!/usr/bin/env bash
# Train a language model on the text of data-prep/text.sh: ARCH ATTENTION --data DATA --out RUNS. The same command resumes.
source "$(dirname "${BASH_SOURCE[0]}")/environment.sh"
start fairseq fairseq_mhe.cli pretrain "$@"
