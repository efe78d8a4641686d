#!/usr/bin/env bash
# Prepare the embedded English-German corpus (home-assistant/) as a data folder for fairseq-train.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/../scripts/start.sh" fairseq corpus home_assistant_en_de "$@"
