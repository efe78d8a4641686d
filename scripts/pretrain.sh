#!/usr/bin/env bash
# Train a language model on the text of data-prep/text.sh: ARCH ATTENTION --data DATA --out RUNS. The same command resumes.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/start.sh" fairseq pretrain "$@"
