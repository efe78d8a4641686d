#!/usr/bin/env bash
# IWSLT14 German-English, prepared as by fairseq's recipe, from the public archive to a data folder that fairseq-train reads.
set -euo pipefail

# shellcheck source=scripts/environment.sh
source "$(dirname "${BASH_SOURCE[0]}")/../scripts/environment.sh"

set_up fairseq "$@"
run -m fairseq_mhe.prepare.corpora.iwslt14
