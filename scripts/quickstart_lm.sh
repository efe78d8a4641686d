#!/usr/bin/env bash
# Language models from nothing to a table, in one command: installs fairseq-mhe, prepares the English side of the
# embedded corpus, pre-trains an MHA and an MHE-Mul model, fine-tunes both to tell which integration a message belongs to,
# scores, and prints the table. Stopped at any moment, the same command goes on.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/environment.sh"
start fairseq fairseq_mhe.cli quickstart-lm "$@"
