#!/usr/bin/env bash
# From nothing to the table, in one command: installs fairseq-mhe with the known-good versions of constraints.txt,
# prepares the embedded English-German corpus, trains an MHA and an MHE-Mul model of the same size, translates, scores,
# and prints the table. What is done already is not done again; stopped at any moment, the same command goes on.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/environment.sh"
start fairseq fairseq_mhe.cli quickstart "$@"
