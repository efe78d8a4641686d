#!/usr/bin/env bash
# Download WikiText-103 (Merity et al. 2017) and prepare it for language models.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/../scripts/start.sh" fairseq corpus wikitext103 "$@"
