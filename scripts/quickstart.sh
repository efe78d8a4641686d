#!/usr/bin/env bash
# From nothing to the table: a small corpus, an MHA and an MHE-Mul model, BLEU; after a stop the same command resumes.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/environment.sh"
start fairseq fairseq_mhe.cli quickstart "$@"
