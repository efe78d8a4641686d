#!/usr/bin/env bash
# Makes the paper's table of language models: pre-trains all kinds, fine-tunes them on tasks. The same command resumes.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/environment.sh"
start fairseq fairseq_mhe.cli nlu-table "$@"
