#!/usr/bin/env bash
# Trains one cell of the paper's table, a row with a kind of attention, on a prepared data folder by the row's recipe:
# ROW ATTENTION --data DATA --out RUNS. Finished work is skipped; after a stop the same command resumes.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/environment.sh"
start fairseq fairseq_mhe.cli train "$@"
