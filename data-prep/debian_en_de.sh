#!/usr/bin/env bash
# An English-German corpus of Debian's translated documentation and interfaces, as a data folder for fairseq-train.
set -euo pipefail

# shellcheck source=scripts/environment.sh
source "$(dirname "${BASH_SOURCE[0]}")/../scripts/environment.sh"

set_up fairseq "$@"
export PYTHONPATH="$repository/data-prep${PYTHONPATH:+:$PYTHONPATH}"
run -m debian
