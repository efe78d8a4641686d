#!/usr/bin/env bash
# The paper's table of language models, pre-trained and fine-tuned on tasks with several seeds; the same command resumes.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/environment.sh"
start fairseq fairseq_mhe.cli nlu-table "$@"
