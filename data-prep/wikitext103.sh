#!/usr/bin/env bash
# WikiText-103 (Merity et al. 2017), from its published files to a folder that language models train on.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/prepare.sh" fairseq_mhe.prepare.corpora wikitext103 "$@"
