#!/usr/bin/env bash
# Multi30k English-German, the preprocessed text of Wu et al. 2021, as a data folder.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/prepare.sh" fairseq_mhe.prepare.corpora multi30k_bpe_en_de "$@"
