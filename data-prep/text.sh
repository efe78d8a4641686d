#!/usr/bin/env bash
# Running text of one's own to a folder that language models train on.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/prepare.sh" fairseq_mhe.prepare.corpora text "$@"
