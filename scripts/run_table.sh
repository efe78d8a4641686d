#!/usr/bin/env bash
# The paper's table on a prepared data folder: rows x kinds of attention x seeds, --data DATA --out OUT. Writes table.md,
# .tex, .csv, .json and picture.png, with the paper's numbers beside. Finished work is skipped; after a stop the same
# command resumes.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/environment.sh"
start fairseq fairseq_mhe.cli run-table "$@"
