#!/usr/bin/env bash
# Prepare your own running text for language models.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/../scripts/start.sh" fairseq corpus text "$@"
