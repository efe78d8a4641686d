#!/usr/bin/env bash
# From nothing to the table: a small corpus, an MHA and an MHE-Mul model, BLEU; after a stop the same command resumes.
source "$(dirname "${BASH_SOURCE[0]}")/environment.sh"
start fairseq fairseq_mhe.cli quickstart "$@"
