#!/usr/bin/env bash
# Multi30k English-German, the preprocessed text of Wu et al. 2021, as a data folder.
set -euo pipefail

# shellcheck source=scripts/environment.sh
source "$(dirname "${BASH_SOURCE[0]}")/../scripts/environment.sh"

set_up fairseq "$@"
run -m fairseq_mhe.prepare.corpora.multi30k_bpe
