#!/usr/bin/env bash
# Fine-tune a masked language model on a task and score it: TASK-DATA --model RUN --out RUNS. The same command resumes.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/start.sh" fairseq finetune "$@"
