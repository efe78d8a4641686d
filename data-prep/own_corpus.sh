#!/usr/bin/env bash
# Parallel text of one's own, in any language pair, to a data folder that fairseq-train reads.
set -euo pipefail

# shellcheck source=data-prep/environment.sh
source "$(dirname "${BASH_SOURCE[0]}")/environment.sh"
exec "$python" -m fairseq_mhe.cli prepare "$@"
