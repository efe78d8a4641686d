#!/usr/bin/env bash
# Make the paper's table of language models: pre-train all kinds, fine-tune them on tasks. The same command resumes.
source "$(dirname "${BASH_SOURCE[0]}")/environment.sh"
start fairseq fairseq_mhe.cli nlu-table "$@"
