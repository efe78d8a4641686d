#!/usr/bin/env bash
# Penn Treebank as language models read it (Mikolov et al. 2011), from a folder of its files.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/prepare.sh" fairseq_mhe.prepare.corpora ptb "$@"
