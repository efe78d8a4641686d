#!/usr/bin/env bash
# The embedded English-German corpus (home-assistant/) as a data folder that fairseq-train reads.
set -euo pipefail

# shellcheck source=scripts/environment.sh
source "$(dirname "${BASH_SOURCE[0]}")/../scripts/environment.sh"

set_up fairseq "$@"
run -m fairseq_mhe.prepare.corpora.home_assistant
