#!/usr/bin/env bash
# Prepare SQuAD 1.1 or 2.0 in the subwords of a language model's data folder: TASK --text DATA.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/../scripts/start.sh" fairseq corpus squad "$@"
