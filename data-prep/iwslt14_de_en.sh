#!/usr/bin/env bash
# IWSLT14 German-English, prepared as by fairseq's recipe, from the public archive to a data folder that fairseq-train reads.
set -euo pipefail

# shellcheck source=data-prep/environment.sh
source "$(dirname "${BASH_SOURCE[0]}")/environment.sh"
exec "$python" -m fairseq_mhe.prepare.corpora.iwslt14 "$@"
