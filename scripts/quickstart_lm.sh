#!/usr/bin/env bash
# Language models from nothing to a table: installs fairseq-mhe, prepares the English side of the embedded corpus, trains an
# MHA and an MHE-Mul model, fine-tunes both to classify messages by integration, scores, and prints the table. Finished
# work is skipped; after a stop the same command resumes.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/environment.sh"
start fairseq fairseq_mhe.cli quickstart-lm "$@"
