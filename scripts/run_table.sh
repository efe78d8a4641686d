#!/usr/bin/env bash
# Runs the paper's table on a prepared data folder: rows x kinds of attention x seeds, --data DATA --out OUT, into
# OUT/table.md, .tex, .csv, .json, picture.png and samples.md, with the paper's numbers beside. Stopped at any moment,
# the same command goes on from there; what is finished is not done again.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/environment.sh"
start fairseq fairseq_mhe.cli run-table "$@"
