#!/usr/bin/env bash
# Prepare Multi30k English-German, preprocessed by Wu et al. 2021, as a data folder for fairseq-train.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/../scripts/start.sh" fairseq corpus multi30k_bpe_en_de "$@"
