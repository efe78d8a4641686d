#!/usr/bin/env bash
# The paper's table of language models: kinds of attention pre-trained, each fine-tuned on tasks with several seeds:
# ARCH --data DATA --tasks TASK-DATA ... --out RUNS. Finished work is skipped; after a stop the same command resumes.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/environment.sh"
start fairseq fairseq_mhe.cli nlu-table "$@"
