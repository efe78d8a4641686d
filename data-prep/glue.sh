#!/usr/bin/env bash
# A task of GLUE in the subwords of a language model's data folder: TASK --folder F --text DATA.
set -euo pipefail

# shellcheck source=scripts/environment.sh
source "$(dirname "${BASH_SOURCE[0]}")/../scripts/environment.sh"

set_up fairseq "$@"
run -m fairseq_mhe.prepare.corpora.glue
