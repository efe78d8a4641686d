#!/usr/bin/env bash
# Trains a row with a kind of attention by the row's recipe; the same command resumes: ROW ATTENTION --data DATA --out RUNS
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/environment.sh"
start fairseq fairseq_mhe.cli train "$@"
