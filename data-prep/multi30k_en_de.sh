#!/usr/bin/env bash
# Download Multi30k English-German and prepare it as a data folder for fairseq-train.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/../scripts/start.sh" fairseq corpus multi30k_en_de "$@"
