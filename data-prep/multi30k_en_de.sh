#!/usr/bin/env bash
# Multi30k English-German, from the public files to a data folder that fairseq-train reads.
set -euo pipefail

# shellcheck source=scripts/environment.sh
source "$(dirname "${BASH_SOURCE[0]}")/../scripts/environment.sh"

set_up fairseq "$@"
run -m fairseq_mhe.prepare.corpora.multi30k
