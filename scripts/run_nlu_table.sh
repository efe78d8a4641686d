#!/usr/bin/env bash
# Make the paper's table of language models: pre-train all kinds, fine-tune them on tasks. The same command resumes.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/start.sh" fairseq nlu-table "$@"
