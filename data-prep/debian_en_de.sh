#!/usr/bin/env bash
# An English-German corpus of Debian's translated documentation and interfaces, as a data folder for fairseq-train.
set -euo pipefail

# shellcheck source=data-prep/environment.sh
source "$(dirname "${BASH_SOURCE[0]}")/environment.sh"
export PYTHONPATH="$repository/data-prep${PYTHONPATH:+:$PYTHONPATH}"
exec "$python" -m debian "$@"
