#!/usr/bin/env bash
# Runs the paper's table on a prepared data folder: rows x kinds of attention x seeds, --data DATA --out OUT, into
# OUT/table.md, .tex, .csv, .json and picture.png, with the paper's numbers beside. Stopped at any moment, the same
# command resumes; it skips finished cells.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/environment.sh"
start fairseq fairseq_mhe.cli run-table "$@"
