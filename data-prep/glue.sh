#!/usr/bin/env bash
# Prepare a task of GLUE in the subwords of a language model's data folder: TASK --text DATA.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/../scripts/start.sh" fairseq corpus glue "$@"
