#!/usr/bin/env bash
# Multi30k English-German, from the public files to a data folder that fairseq-train reads.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/prepare.sh" fairseq_mhe.prepare.corpora multi30k_en_de "$@"
