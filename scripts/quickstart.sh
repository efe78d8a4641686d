#!/usr/bin/env bash
# From nothing to the table: installs fairseq-mhe with the versions of constraints.txt, prepares the embedded English-German
# corpus, trains an MHA and an MHE-Mul model of the same size, translates, scores, and prints the table. Finished work is
# skipped; after a stop the same command resumes.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/environment.sh"
start fairseq fairseq_mhe.cli quickstart "$@"
