#!/usr/bin/env bash
# Prepare the Penn Treebank (Mikolov et al. 2011), from a folder of its files, for language models.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/../scripts/start.sh" fairseq corpus ptb "$@"
