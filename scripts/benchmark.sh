#!/usr/bin/env bash
# Measure kinds of attention beside stock fairseq, by `fairseq-mhe bench`. Run nothing else on the machine meanwhile.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/start.sh" fairseq,convert bench "$@"
