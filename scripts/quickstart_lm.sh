#!/usr/bin/env bash
# Prepare a small corpus, pre-train and fine-tune two language models, and print a table. The same command resumes.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/start.sh" fairseq quickstart-lm "$@"
