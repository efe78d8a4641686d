#!/usr/bin/env bash
# Prepare a small corpus, train an MHA and an MHE-Mul model, and print a table with BLEU. The same command resumes.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/start.sh" fairseq quickstart "$@"
