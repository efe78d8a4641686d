#!/usr/bin/env bash
# Download WMT14 English-German and prepare it as a data folder for fairseq-train.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/../scripts/start.sh" fairseq corpus wmt14_en_de "$@"
