#!/usr/bin/env bash
# Penn Treebank as language models read it (Mikolov et al. 2011), from a folder of its files.
set -euo pipefail

# shellcheck source=scripts/environment.sh
source "$(dirname "${BASH_SOURCE[0]}")/../scripts/environment.sh"

set_up fairseq "$@"
run -m fairseq_mhe.prepare.corpora.ptb
