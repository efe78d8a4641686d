#!/usr/bin/env bash
# Prepares a small corpus, trains an MHA and an MHE-Mul model, and prints a table with BLEU. The same command resumes.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/environment.sh"
start fairseq fairseq_mhe.cli quickstart "$@"
