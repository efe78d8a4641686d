#!/usr/bin/env bash
# Train a row with a kind of attention by the row's recipe: ROW ATTENTION --data DATA --out RUNS. The same command resumes.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/start.sh" fairseq train "$@"
