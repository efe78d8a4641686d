#!/usr/bin/env bash
# Make the paper's table, rows x kinds of attention x seeds: --data DATA --out OUT. The same command resumes.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/start.sh" fairseq run-table "$@"
