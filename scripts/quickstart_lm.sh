#!/usr/bin/env bash
# From nothing to a table of language models: a small corpus, pre-training, fine-tuning; the same command resumes.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/environment.sh"
start fairseq fairseq_mhe.cli quickstart-lm "$@"
