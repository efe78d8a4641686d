#!/usr/bin/env bash
# Parallel text of one's own, in any language pair, to a data folder that fairseq-train reads.
set -euo pipefail

# shellcheck source=scripts/environment.sh
source "$(dirname "${BASH_SOURCE[0]}")/../scripts/environment.sh"

set_up fairseq "$@"
run -m fairseq_mhe.cli prepare
