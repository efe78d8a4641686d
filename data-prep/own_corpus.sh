#!/usr/bin/env bash
# Prepare your own parallel text, in any language pair, as a data folder for fairseq-train.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/../scripts/start.sh" fairseq prepare "$@"
