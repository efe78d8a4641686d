#!/usr/bin/env bash
# Prepares a small corpus, pre-trains and fine-tunes two language models, and prints a table. The same command resumes.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/environment.sh"
start fairseq fairseq_mhe.cli quickstart-lm "$@"
