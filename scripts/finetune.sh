#!/usr/bin/env bash
# Fine-tunes a masked language model on a task and scores it: TASK-DATA --model RUN --out RUNS.
# Stopped at any moment, the same command goes on from there.
set -euo pipefail
# shellcheck source=scripts/environment.sh
source "$(dirname "${BASH_SOURCE[0]}")/environment.sh"
set_up fairseq "$@"
run -m fairseq_mhe.cli finetune
