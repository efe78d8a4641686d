#!/usr/bin/env bash
# Multi30k English-German, from the public files to a data folder that fairseq-train reads.
set -euo pipefail

# shellcheck source=data-prep/environment.sh
source "$(dirname "${BASH_SOURCE[0]}")/environment.sh"
exec "$python" -m fairseq_mhe.prepare.corpora.multi30k "$@"
