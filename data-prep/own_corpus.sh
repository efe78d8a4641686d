#!/usr/bin/env bash
# Parallel text of one's own, in any language pair, to a data folder that fairseq-train reads.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/prepare.sh" fairseq_mhe.cli prepare "$@"
