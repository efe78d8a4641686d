#!/usr/bin/env bash
# The embedded English-German corpus (home-assistant/) as a data folder that fairseq-train reads.
set -euo pipefail

# shellcheck source=data-prep/environment.sh
source "$(dirname "${BASH_SOURCE[0]}")/environment.sh"
exec "$python" -m fairseq_mhe.prepare.corpora.home_assistant "$@"
